"""The spec of a study, and its receipt, say how the anchors were drawn."""

import pytest
import torch
from acpc.contract import (
    AnchorSample,
    AnchorSource,
    CheckpointRef,
    DriftStudy,
    GeometryStudy,
    PlannerStudy,
    Reading,
    SensitivityStudy,
    Study,
)
from acpc_server.encoding import AnchorSetSource, AnySource
from acpc_server.studies import StudySpec

MODEL = CheckpointRef(name="model", weights="weights.pt", digest="a" * 64)
DATASET = AnchorSource("d.h5", "tworoom")


def said(study: Study, anchors: AnySource = DATASET) -> tuple[object, object]:
    """What the receipt says of the windows: future frames, and how they were drawn."""
    spec = StudySpec(checkpoint=MODEL, anchors=anchors, study=study)
    parameters = spec.receipt("c" * 64, torch.device("cpu")).parameters
    return parameters.get("window_future_frames"), parameters.get("sample")


@pytest.mark.parametrize(
    ("study", "wanted"),
    [
        (DriftStudy(), (8, "windows")),
        (DriftStudy(reading=Reading.RELEASED), (9, "episodes")),
        (PlannerStudy(reading=Reading.RELEASED), (9, "episodes")),
        (GeometryStudy(), (8, "windows")),
        (SensitivityStudy(horizon=4), (4, "windows")),
    ],
)
def test_every_study_says_how_its_anchors_were_drawn(study: Study, wanted: tuple[int, str]) -> None:
    assert said(study) == wanted


def test_of_a_set_the_receipt_says_what_is_known() -> None:
    assert said(GeometryStudy(), AnchorSetSource("d" * 64, 4)) == (None, None)
    known = AnchorSetSource("d" * 64, 4, 9, AnchorSample.WINDOWS)
    assert said(DriftStudy(), known) == (9, "windows")
