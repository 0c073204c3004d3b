"""Thresholds for later checkpoints: chosen on all tasks, written, read, known by their digest."""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acpc.contract import Thresholds
from acpc_client import Result, load_result, load_thresholds, save_result
from acpc_client.errors import ArgumentError
from acpc_lab.studies import SweepRows, calibrated
from acpc_lab.studies.thresholds import ThresholdParameters
from result_documents import checked
from study_examples import sweep_columns
from threshold_reference import Cells, chosen

LEVELS = [0.0, 0.1, 0.2]
SWEEP: Cells = {
    (task, run): {
        "ir_rel": [1.0, *irs], "sr": [1.0, 1.0, sr], "success_noisy": [0, noisy, 90],
        "success_clean": [90, 90, 90],
    }
    for task, run, irs, sr, noisy in (
        ("a", "0", (0.5, 0.09), 0.97, 10), ("a", "1", (0.28, 0.12), 0.91, 10),
        ("b", "0", (0.18, 0.14), 0.99, 90), ("b", "1", (0.19, 0.14), 0.99, 90),
    )
}  # fmt: skip
RECEIPT = ("checkpoint_digest", "anchors_digest", "perturbation_digest", "parameters_digest")


def rows(family: str = "lewm", **more: str) -> SweepRows:
    return SweepRows.of(sweep_columns(SWEEP, LEVELS, family=family, **more))


@pytest.mark.parametrize("reading", ["paper", "released"])
def test_the_pair_is_that_of_plain_loops_on_all_tasks_and_the_path_ends_at_it(reading: str) -> None:
    parameters = ThresholdParameters(reading=reading)
    found = calibrated(rows(), parameters)
    grids = parameters.ir_grid, parameters.sr_grid
    levels = LEVELS if reading == "released" else None
    assert (found.ir, found.sr) == chosen(SWEEP, ("a", "b"), grids, levels)
    assert (found.tasks, found.runs, found.splits) == (("a", "b"), 4, 2)
    left = [step.left for step in found.selection]
    assert left == sorted(left, reverse=True) and left[-1] == 1 and 1 not in left[:-1]
    last = {step.criterion: step.best for step in found.selection}
    assert last.get("largest t_SR", found.sr) == found.sr


@pytest.mark.parametrize(
    ("irs", "srs", "words"),
    [
        ((0.1, 0.2, 0.3), (0.8, 0.9, 0.95), ()),
        ((0.1, 0.2), (0.8, 0.9, 0.95), ("t_IR 0.2 lies at the edge of its grid: a larger one",)),
        ((0.2, 0.3), (0.8, 0.9, 0.95), ("t_IR 0.2 lies at the edge of its grid: a smaller one",)),
        ((0.1, 0.2, 0.3), (0.8, 0.9), ("t_SR 0.9 lies at the edge of its grid: a larger one",)),
    ],
)
def test_an_edge_of_the_grid_is_warned_of(
    irs: tuple[float, ...], srs: tuple[float, ...], words: tuple[str, ...]
) -> None:
    """A pair inside its grid is not; 0.9 is, since runs with SR of 0.91 have to pass."""
    found = calibrated(rows(), ThresholdParameters(irs, srs))
    assert (found.ir, found.sr) == (0.2, 0.9)
    assert len(found.warnings) == len(words)
    assert all(said.startswith(start) for said, start in zip(found.warnings, words, strict=True))


def test_no_threshold_of_sr_lies_above_one() -> None:
    sure = dataclasses.replace(rows(), sr=[1.0] * 12)
    found = calibrated(sure, ThresholdParameters((0.1, 0.2, 0.3), (0.9, 1.0)))
    assert (found.sr, found.warnings) == (1.0, ())


def test_thresholds_are_of_one_family_and_keep_the_receipts() -> None:
    told = {name: name[0] * 64 for name in RECEIPT}
    both = SweepRows.joined([rows("lewm", **told), rows("pldm")])
    with pytest.raises(ArgumentError, match="family: found none, wanted one of lewm, pldm"):
        calibrated(both, ThresholdParameters())
    with pytest.raises(ArgumentError, match="family: found dino, wanted one of lewm, pldm"):
        calibrated(both, ThresholdParameters(), "dino")
    found = calibrated(both, ThresholdParameters(), "lewm")
    assert found.family == "lewm" and len(found.scores) == len(rows())
    assert {name: getattr(found.scores[0], name) for name in RECEIPT} == told
    assert not any(calibrated(both, ThresholdParameters(), "pldm").scores[0].checkpoint_digest)
    assert calibrated(rows(""), ThresholdParameters()).thresholds.family == ""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "thresholds.json"
    parameters = ThresholdParameters((0.1, 0.2, 0.3), (0.8, 0.9, 0.95))
    asked = {"study": "thresholds", "parameters": parameters.to_dict(), "sources": []}
    save_result(Result("thresholds", calibrated(rows(), parameters), asked), path)
    return path


def test_a_file_gives_its_thresholds_back_with_its_digest(written: Path) -> None:
    digest = hashlib.sha256(written.read_bytes()).hexdigest()
    read = load_thresholds(written)
    assert read.thresholds == Thresholds(0.2, 0.9, digest, "lewm")
    assert checked(written.read_text())["kind"] == "thresholds"
    assert load_result(written).answer == dataclasses.replace(read, source_digest="")


def at(*path: Any) -> Callable[[Any, Any], None]:
    def put(document: Any, value: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        if value is None:
            del document[path[-1]]
        else:
            document[path[-1]] = value

    return put


@pytest.mark.parametrize(
    ("put", "value", "words"),
    [
        (at("answer", "ir"), 0.25, r"answer.ir: found 0.25, but request.parameters.ir_grid is "),
        (at("answer", "ir"), -1, r"answer.ir: found -1.0, wanted a number in \(0, inf\)"),
        (at("answer", "sr"), "high", "answer.sr: found 'high', wanted a number"),
        (at("answer", "sr"), None, "answer.sr: is missing"),
        (at("answer", "family"), "x" * 200, "family: found 200 characters"),
        (at("answer", "selection", 0, "left"), [], r"selection\[0\].left: found \[\], wanted"),
        (at("request"), None, "request.parameters lacks the grids"),
        (
            at("kind"),
            "sweep",
            "holds a result of kind sweep, wanted what acpc study run thresholds",
        ),
        (at("schema"), "other", "schema: found 'other'"),
        (at("schema_version"), 2, "of a newer release"),
    ],
)
def test_a_changed_or_damaged_file_is_refused_in_one_line_that_names_the_field(
    put: Callable[[Any, Any], None], value: object, words: str, written: Path
) -> None:
    document = json.loads(written.read_text())
    put(document, value)
    written.write_text(json.dumps(document))
    with pytest.raises(ArgumentError, match=words) as raised:
        load_thresholds(written)
    assert str(written) in str(raised.value) and "\n" not in str(raised.value)
