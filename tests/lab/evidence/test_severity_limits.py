"""The limit of a grid of severities: the largest below the first failure, and its interval."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from acpc.contract import (
    GRADED,
    ArgumentError,
    Outcome,
    Score,
    examples_of,
    parse,
    severities_up_to,
    unchanged,
)
from acpc_client.errors import FailedPrecondition
from acpc_lab.evidence import SeverityLimit
from hypothesis import given
from hypothesis import strategies as st
from report_samples import BOUND, SE_LOG_IR, T_IR, judged
from report_samples import side as side_score

TOP, STEPS = 0.2, 20
STEP = TOP / STEPS
GRID = severities_up_to(parse(f"gaussian_noise:{TOP}"), STEPS)
# Relative IR at a severity; the intervals are BOUND standard errors wide on a logarithm.
Curve = Callable[[float], float]


def steep(crossing: float) -> Curve:
    """Relative IR that grows as a cube, and is the threshold's at one severity."""
    return lambda severity: T_IR * (severity / crossing) ** 3


def score_at(curve: Curve, severity: float) -> Score:
    reference = side_score("two-base", 1.0, 50.0)
    made = judged(side_score("two-a", curve(severity), 50.0), reference)
    relative = made.verdict.ir_relative
    assert relative is not None and relative == pytest.approx(curve(severity))
    return made


def limit_of(curve: Curve) -> SeverityLimit:
    scored = [(s, score_at(curve, s.severity), f"operations/{i}") for i, s in enumerate(GRID)]
    return SeverityLimit.of(reversed(scored))


@pytest.mark.parametrize("crossing", [0.013, 0.031, 0.055, 0.1, 0.143, 0.185])
def test_the_limit_is_the_largest_severity_below_the_first_failure(crossing: float) -> None:
    """Its ends are the severities beside those at which the intervals leave the threshold."""
    found = limit_of(steep(crossing))
    assert found.estimate is not None and 0 <= crossing - found.estimate <= STEP
    # By the definition of the intervals' width.
    surely, never = (crossing * math.exp(end * BOUND * SE_LOG_IR / 3) for end in (-1, 1))
    assert 0 <= surely - found.holds <= STEP + 1e-9
    assert never > TOP - STEP if found.breaks is None else 0 <= found.breaks - never <= STEP + 1e-9
    assert found.broken_by == "IR" and found.monotone and found.unit == "sigma"
    assert [p.severity for p in found.points] == [shift.severity for shift in GRID]


def test_what_holds_everywhere_or_nowhere_has_an_open_end() -> None:
    found = limit_of(steep(10.0))
    assert (found.estimate, found.holds, found.breaks) == (None, TOP, None)
    assert found.passes and found.brief == "0.2 or more"
    assert "the largest that was scored" in found.headline()
    never = limit_of(steep(0.001))
    assert (never.estimate, never.holds, never.breaks) == (0.0, 0.0, STEP)
    assert not never.passes


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("first", [0, 3, 9, 14])
def test_no_failing_band_is_missed(first: int, width: int) -> None:
    """Wherever it lies, and although everything above it passes."""
    band = {shift.severity for shift in GRID[first : first + width]}
    found = limit_of(lambda severity: 3 * T_IR if severity in band else T_IR / 3)
    below = GRID[first - 1].severity if first else 0.0
    assert (found.estimate, found.holds, found.breaks) == (below, below, None)
    assert not found.monotone and "not monotone" in found.notes[0]


OUTCOMES = (Outcome.PASSED, Outcome.FAILED, Outcome.UNDECIDED)
SAMPLE = score_at(steep(0.1), 0.05)


@given(st.lists(st.sampled_from([(o, s) for o in OUTCOMES[:2] for s in OUTCOMES]), min_size=1))
def test_every_statement_is_of_severities_that_were_scored(
    verdicts: list[tuple[Outcome, Outcome]],
) -> None:
    """Severities that stand for two changes, as brightness up and down, are judged by both."""
    assert SAMPLE.evidence is not None
    scored = []
    for index, (outcome, sure) in enumerate(verdicts):
        verdict = replace(SAMPLE.verdict, outcome=outcome)
        evidence = replace(SAMPLE.evidence, confident_outcome=sure)
        shift = parse(f"brightness:{(-1) ** index * (index // 2 + 1) / 1000}")
        scored.append((shift, replace(SAMPLE, verdict=verdict, evidence=evidence), ""))
    found = SeverityLimit.of(scored)
    for point in found.points:
        if found.estimate is None or point.severity <= found.estimate:
            assert point.outcome is Outcome.PASSED
        if point.severity <= found.holds:
            assert point.sure is Outcome.PASSED
        if found.breaks is not None and point.severity >= found.breaks:
            assert point.sure is Outcome.FAILED


def test_jobs_that_stopped_at_different_anchors_belong_together() -> None:
    """Until decided, a clear severity takes fewer anchors than a narrow one."""
    first = score_at(steep(0.05), 0.05)
    fewer = replace(first.checkpoint, anchors=first.checkpoint.anchors // 2)
    receipt = replace(first.receipt, anchors_digest="0" * 64)
    second = replace(score_at(steep(0.05), 0.1), checkpoint=fewer, receipt=receipt)
    assert len(SeverityLimit.of([(GRID[0], first, ""), (GRID[1], second, "")]).points) == 2


def test_scores_that_do_not_belong_together_are_refused() -> None:
    first = score_at(steep(0.05), 0.05)
    for name in ("checkpoint_digest", "reference_digest", "anchors_digest"):
        other = replace(first, receipt=replace(first.receipt, **{name: "0" * 64}))
        with pytest.raises(FailedPrecondition, match=f"the {name.partition('_')[0]} changed"):
            SeverityLimit.of([(GRID[0], first, ""), (GRID[1], other, "")])
    with pytest.raises(FailedPrecondition, match="no reference or no evidence"):
        SeverityLimit.of([(GRID[0], replace(first, evidence=None), "")])
    with pytest.raises(ArgumentError, match="found no severity"):
        SeverityLimit.of([])


def test_a_limit_is_a_table() -> None:
    found = limit_of(steep(0.1))
    assert len(found.table()["severity"]) == STEPS
    assert found.headline() == (
        f"two-a holds up to sigma {found.estimate:.3g}, then breaks by IR; "
        f"for sure it holds up to {found.holds:.3g} and is broken from {found.breaks:.3g}"
    )


@pytest.mark.parametrize("kind", GRADED)
def test_steps_of_every_kind_grow_to_the_strongest(kind: str) -> None:
    *milder, strongest = examples_of(kind)
    grown = [shift.severity for shift in (unchanged(strongest), *milder, strongest)]
    assert grown == sorted(set(grown))
    made = severities_up_to(strongest, STEPS)
    severities = [shift.severity for shift in made]
    assert made[-1] == strongest and severities[0] > 0
    assert severities == sorted(set(severities)) and len(made) <= STEPS


@pytest.mark.parametrize(
    ("shift", "steps", "problem"),
    [
        ("identity", 3, "has no severity"),
        ("given_views:a:0.5", 3, "has no severity"),
        ("gaussian_noise:0", 3, "changes nothing"),
        ("gaussian_noise:0.1", 0, "steps: found 0, wanted 1 to 256"),
    ],
)
def test_steps_that_do_not_exist_are_refused(shift: str, steps: int, problem: str) -> None:
    with pytest.raises(ArgumentError, match=problem):
        severities_up_to(parse(shift), steps)
