"""The score and the verdict follow the paper; the verdict never contradicts its numbers."""

import math

import numpy_reference as reference
import pytest
from acpc.contract import (
    ArgumentError,
    FailedPrecondition,
    Outcome,
    relative_ir,
    screen,
    screen_score,
)
from hypothesis import given
from hypothesis import strategies as st

POSITIVE = st.floats(1e-6, 1e6)
FRACTION = st.integers(1, 100).flatmap(lambda n: st.integers(0, n).map(lambda k: k / n))


@st.composite
def near_threshold(draw: st.DrawFn, threshold: float) -> float:
    """The threshold itself, its float64 neighbours, or anything nonnegative."""
    steps = draw(st.integers(-3, 3))
    value = threshold
    for _ in range(abs(steps)):
        value = math.nextafter(value, math.copysign(math.inf, steps))
    return draw(st.one_of(st.just(max(value, 0.0)), st.floats(0, 1e9)))


@given(st.data(), st.floats(5e-324, 1e300), st.floats(0, 1, exclude_min=True))
def test_score_is_nonnegative_exactly_when_both_requirements_hold(
    data: st.DataObject, t_ir: float, t_sr: float
) -> None:
    ir_relative = data.draw(near_threshold(t_ir))
    sr = min(1.0, data.draw(near_threshold(t_sr)))
    score = screen_score(ir_relative, sr, t_ir, t_sr)
    assert (score >= 0) == (ir_relative <= t_ir and sr >= t_sr)
    # An unaugmented reference with raw IR 1 makes the raw IR the relative one.
    verdict = screen(
        ir_raw=ir_relative, sr=sr, t_ir=t_ir, t_sr=t_sr, reference_ir_raw=1.0, reference_sr=1.0
    )
    assert (verdict.outcome is Outcome.PASSED) == (score >= 0)
    assert verdict.score == score


@given(
    ir=POSITIVE,
    sr=FRACTION,
    base_ir=POSITIVE,
    base_sr=FRACTION,
    t_ir=st.floats(0.01, 2),
    t_sr=st.floats(0.01, 1),
)
def test_verdict_is_the_papers(
    *, ir: float, sr: float, base_ir: float, base_sr: float, t_ir: float, t_sr: float
) -> None:
    verdict = screen(
        ir_raw=ir, sr=sr, t_ir=t_ir, t_sr=t_sr, reference_ir_raw=base_ir, reference_sr=base_sr
    )
    relative = reference.relative_ir(ir, base_ir)
    score = reference.screen_score(relative, sr, t_ir, t_sr)
    own = reference.screen_score(1.0, base_sr, t_ir, t_sr)
    assert (verdict.ir_relative, verdict.score) == (relative, score)
    assert verdict.delta_score == score - own
    assert str(verdict.outcome) == reference.verdict(relative, sr, t_ir, t_sr)
    assert verdict.ir_passed == (relative <= t_ir)
    assert verdict.sr_passed == (sr >= t_sr)
    assert (verdict.thresholds.ir, verdict.thresholds.sr) == (t_ir, t_sr)


@given(FRACTION, st.floats(0.01, 1))
def test_without_a_reference_only_failure_is_decided(sr: float, t_sr: float) -> None:
    verdict = screen(ir_raw=0.2, sr=sr, t_ir=0.3, t_sr=t_sr)
    assert str(verdict.outcome) == reference.verdict(None, sr, 0.3, t_sr)
    assert verdict.outcome is not Outcome.PASSED
    absent = (verdict.ir_relative, verdict.score, verdict.delta_score, verdict.ir_passed)
    assert absent == (None, None, None, None)


@pytest.mark.parametrize(
    ("ir_raw", "sr", "reference_given", "parts"),
    [
        (0.2, 0.98, True, ["Passes", "0.20 times", "at most 0.30", "98.00 %", "at least 95.00 %"]),
        (0.2, 0.4, True, ["Fails on SR", "only 40.00 %", "relative IR passes at 0.20"]),
        (0.8, 0.98, True, ["Fails on relative IR", "0.80 times", "SR passes, 98.00 %"]),
        (0.8, 0.4, True, ["Fails on both", "0.80 times", "only 40.00 %"]),
        (0.2, 0.98, False, ["Inconclusive", "98.00 %", "unaugmented reference"]),
        (0.2, 0.4, False, ["Fails on SR", "only 40.00 %", "could not change that"]),
        (0.2, 0.94999, True, ["only 94.999 %", "at least 95.000 %"]),
    ],
)
def test_summary_says_what_decided(
    ir_raw: float, sr: float, reference_given: bool, parts: list[str]
) -> None:
    known = {"reference_ir_raw": 1.0, "reference_sr": 1.0} if reference_given else {}
    summary = screen(ir_raw=ir_raw, sr=sr, t_ir=0.3, t_sr=0.95, **known).summary
    for part in parts:
        assert part in summary
    assert summary.endswith(".")
    assert "collapse" not in summary


@pytest.mark.parametrize("broken", [0.0, math.nan, math.inf])
def test_a_reference_without_ir_is_refused(broken: float) -> None:
    with pytest.raises(FailedPrecondition, match="relative IR is undefined"):
        relative_ir(0.2, broken)


GOOD = {
    "ir_raw": 0.2, "sr": 1.0, "reference_ir_raw": 1.0, "reference_sr": 1.0, "t_ir": 0.3,
    "t_sr": 0.95,
}  # fmt: skip
BAD: list[tuple[str, tuple[float | None, ...], str]] = [
    ("t_ir", (0.0, math.inf, math.nan), "thresholds.ir"),
    ("t_sr", (0.0, 1.1, math.nan), "thresholds.sr"),
    ("sr", (math.nan, 1.5), "sr"),
    ("ir_raw", (math.nan, -0.1), "ir_raw"),
    ("reference_sr", (math.nan,), "reference.sr"),
    ("reference_sr", (None,), "reference"),
]


@pytest.mark.parametrize(("name", "values", "field"), BAD)
def test_bad_numbers_are_refused(name: str, values: tuple[float | None, ...], field: str) -> None:
    for value in values:
        with pytest.raises(ArgumentError) as caught:
            screen(**GOOD | {name: value})
        assert caught.value.field == field
