"""What is sure of a fit: ratios of sums over trajectories, against loops and known worlds."""

from dataclasses import replace

import numpy as np
import pytest
from acpc.contract import EvidenceOptions, FitOutcome
from acpc_server.evidence import FitErrors, Variant, judge_fit

OPTIONS = EvidenceOptions(resamples=400)
COUNT, HORIZON = 60, 4


def errors(seed: int = 0, *, skill: float = 0.3, foreign: float = 2.0) -> FitErrors:
    random = np.random.default_rng(seed)
    still = random.gamma(2.0, 1.0, (COUNT, HORIZON))
    own = still * skill * random.lognormal(0, 0.3, still.shape)
    other = own * foreign * random.lognormal(0, 0.2, still.shape)
    return FitErrors(own, still, other, {}, np.arange(COUNT) // 3)


def better(held: FitErrors, factor: float, seen: int = 20) -> Variant:
    random = np.random.default_rng(5)
    error = held.own * factor * random.lognormal(0, 0.1, held.own.shape)
    error[seen:] = np.nan
    return Variant(error, held.still)


def test_ratios_are_those_of_sums_in_any_order_and_unit() -> None:
    held = errors()
    found = judge_fit(held, OPTIONS)
    assert found is not None and found.outcome is FitOutcome.FITS
    assert found.skill == pytest.approx(held.own.sum() / held.still.sum())
    assert found.foreign == pytest.approx(held.own.sum() / held.foreign.sum())
    for step in range(HORIZON):
        wanted = held.own[:, step].sum() / held.still[:, step].sum()
        assert found.step_skill[step] == pytest.approx(wanted)
    assert found.interval.lower < found.skill < found.interval.upper
    scaled = judge_fit(
        replace(held, own=8 * held.own, still=8 * held.still, foreign=8 * held.foreign), OPTIONS
    )
    assert scaled == found
    # The bootstrap of a loop: exponential weights of trajectories.
    random, totals = np.random.default_rng(1), []
    for _ in range(2000):
        weights = random.standard_exponential(COUNT // 3)[held.trajectory][:, None]
        totals.append((weights * held.own).sum() / (weights * held.still).sum())
    ends = np.quantile(totals, [0.025, 0.975])
    width = found.interval.upper - found.interval.lower
    assert width == pytest.approx(ends[1] - ends[0], rel=0.25)


def test_standing_still_and_ignored_actions_do_not_fit() -> None:
    worse = judge_fit(errors(skill=1.4), OPTIONS)
    assert worse is not None and worse.outcome is FitOutcome.DOES_NOT_FIT
    held = errors()
    ignored = judge_fit(replace(held, foreign=held.own), OPTIONS)
    assert ignored is not None and ignored.foreign == 1
    assert ignored.outcome is FitOutcome.DOES_NOT_FIT
    near = judge_fit(errors(skill=0.92), OPTIONS)
    assert near is not None and near.outcome is FitOutcome.UNDECIDED
    alone = judge_fit(replace(held, trajectory=np.zeros(COUNT, np.int64)), OPTIONS)
    assert alone is not None and alone.outcome is FitOutcome.UNDECIDED
    assert (alone.interval.lower, alone.interval.upper) == (0, np.inf)
    assert judge_fit(replace(held, still=np.zeros_like(held.still)), OPTIONS) is None


@pytest.mark.parametrize(
    ("factor", "sure", "listed"), [(0.7, True, True), (0.94, False, True), (1.3, False, False)]
)
def test_a_cause_is_sure_where_it_surely_matters(factor: float, sure: bool, listed: bool) -> None:
    held = errors()
    found = judge_fit(replace(held, variants={"bgr": better(held, factor)}), OPTIONS)
    assert found is not None
    assert [(one.name, one.sure) for one in found.causes] == [("bgr", sure)] * listed
    unsure = FitOutcome.UNDECIDED if listed else FitOutcome.FITS
    assert found.outcome is (FitOutcome.DOES_NOT_FIT if sure else unsure)
    if listed:
        [cause] = found.causes
        assert cause.anchors == 20
        assert cause.instead_of == pytest.approx(held.own[:20].sum() / held.still[:20].sum())


def test_causes_come_best_first_and_those_that_predict_nothing_not_at_all() -> None:
    held = errors(skill=1.5)
    variants = {"bgr": better(held, 0.4), "mirrored": better(held, 0.2)}
    variants["upside_down"] = better(held, 0.9)  # better than it was, and no better than still
    found = judge_fit(replace(held, variants=variants), OPTIONS)
    assert found is not None
    assert [one.name for one in found.causes] == ["mirrored", "bgr"]
    assert found.tried == ("bgr", "mirrored", "upside_down")
