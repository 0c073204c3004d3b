"""A number that is printed never reads as on another side of its threshold than it is."""

import math
from dataclasses import replace

import pytest
from acpc.contract import beside, ends, percent
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import Interval, Outcome, Score
from acpc_lab.evidence import LimitPoint, SeverityLimit
from client_messages import score_response, sure


@pytest.mark.parametrize(
    ("value", "limit", "spec", "text"),
    [
        (113 / 119, 0.95, ".3f", "0.9496"),
        (0.30004, 0.3, ".3f", "0.30004"),
        (0.29999999999, 0.3, ".4g", "0.29999999999"),
        (-0.0004, 0.0, "+.2f", "-0.0004"),
        (-1e-300, 0.0, "+.2f", "-1e-300"),
        (0.95, 0.95, ".3f", "0.950"),
        (0.2, 0.3, ".3f", "0.200"),
        (0.95, None, ".1f", "0.9"),
        (math.inf, 0.3, ".3f", "inf"),
    ],
)
def test_a_number_stays_on_its_side_of_a_limit(
    value: float, limit: float | None, spec: str, text: str
) -> None:
    assert beside(value, limit, spec) == text


@pytest.mark.parametrize(
    ("lower", "upper", "spec", "texts"),
    [
        (0.9496, 0.9996, ".3g", ("0.949", "1")),
        (0.1, 0.15, ".3f", ("0.100", "0.150")),
        (-0.0004, 0.0004, "+.2f", ("-0.01", "+0.01")),
        (0.0, 1e30, ".3g", ("0", "1e+30")),
        (-math.inf, math.inf, ".3f", ("-inf", "inf")),
    ],
)
def test_ends_of_an_interval_are_rounded_outwards(
    lower: float, upper: float, spec: str, texts: tuple[str, str]
) -> None:
    assert ends(lower, upper, spec) == texts


def test_an_interval_in_words_holds_the_interval() -> None:
    assert str(Interval(0.9496, 0.98341, "")) == "0.949 to 0.984"
    assert str(Interval(0.25, math.inf, "")) == "0.25 or more"
    assert str(Interval(-math.inf, math.inf, "")) == "unbounded"
    assert str(Interval(1e-300, 0.3, "")) == "0 to 0.3"


def test_a_table_shows_on_which_side_of_its_thresholds_a_score_lies() -> None:
    score = Score.from_message(score_response(pb.OUTCOME_FAILED, evidence=sure(pb.OUTCOME_FAILED)))
    barely = replace(score, verdict=replace(score.verdict, ir_relative=0.300001, score=-0.00001))
    shown = dict(zip(barely.shown()[""], barely.shown()["trained"], strict=True))
    assert (shown["relative IR"], shown["S"]) == ("0.300001", -0.00001)


def test_nearly_all_is_no_power_of_ten() -> None:
    assert [percent(share) for share in (0.112, 0.95, 0.999, 1.0)] == [
        "11 %", "95 %", "99.9 %", "100 %",
    ]  # fmt: skip


def test_a_limit_in_words_holds_its_interval() -> None:
    limit = SeverityLimit(
        "a", "b", "blur:15", "kernel_size", 0.95, 7.0, 0.05558, 0.06672, "SR", True, ()
    )
    at = LimitPoint("blur:15", 15.0, Outcome.FAILED, Outcome.FAILED, 0.4, 0.9, -0.2, -0.3, -0.1)
    assert replace(limit, points=(at,)).interval == "[0.0555, 0.0668]"
    assert replace(limit, points=(at,), breaks=None).interval == "[0.0555, beyond 15]"
