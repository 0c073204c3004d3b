"""Answers in a notebook: as tables, as data frames, and while they are awaited."""

from dataclasses import replace

import numpy as np
import pandas as pd
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import (
    PoolCertificate,
    Result,
    Score,
    SelectionCertificate,
    ViewCertificate,
)
from client_messages import score_response


def view(draw: int, winner: int, margin: float) -> ViewCertificate:
    held = SelectionCertificate(margin > 0, margin)
    costs = np.ones(2)
    return ViewCertificate(
        0, draw, costs, costs, costs, costs, costs, costs, winner, 0.0, 0.5, held, None, 0.1, 0.2
    )


MESSAGE = score_response(pb.OUTCOME_FAILED)
RECEIPT = Score.from_message(MESSAGE).receipt
CERTIFICATE = PoolCertificate(
    np.ones(2), 1, (), (view(0, 1, 0.5), view(1, 0, -0.25)), 0.5, 0.0, (), RECEIPT
)


def test_a_score_is_a_table_of_its_verdict_and_a_frame_of_its_anchors() -> None:
    score = Score.from_message(MESSAGE)
    shown = score._repr_html_()
    assert Result.of(score)._repr_html_() == shown
    assert "FAILED: what decided the outcome" in shown
    assert "<td>at least 0.95</td>" in shown and "<th>(reference)</th>" in shown
    frame = score.to_dataframe()
    assert list(frame["side"]) == ["checkpoint"] * 2 + ["reference"] * 2
    assert list(frame["anchor_ids"]) == [7, 11, 7, 11]
    assert list(frame["skip_reasons"]) == ["unspecified", "none_in_reach"] * 2
    assert pd.isna(frame["different_state_distance"][1])
    assert "draw_radius" not in frame


def test_a_score_says_its_outcome_once() -> None:
    said = Score.from_message(MESSAGE).headline()
    assert said.startswith("FAILED") and "Passes" not in said and "Fails" not in said


def test_a_certificate_is_a_row_a_view() -> None:
    frame = CERTIFICATE.to_dataframe()
    assert list(frame["top1_certified"]) == [True, False]
    assert list(frame["winner_changes"]) == [False, True]
    shown = CERTIFICATE._repr_html_()
    assert "winner certified under 1 of 2 views" in shown
    assert "<td>winner</td><td>1/2</td><td>-0.25</td><td>1/2</td>" in shown


def test_a_certificate_says_what_is_denied_to_the_elite_set() -> None:
    views = [replace(one, elite=SelectionCertificate(False, -0.1)) for one in CERTIFICATE.views]
    denied = replace(CERTIFICATE, views=tuple(views))
    assert denied.headline() == "winner certified under 1 of 2 views, elite set under 0"
    assert "elite" not in CERTIFICATE.headline()
