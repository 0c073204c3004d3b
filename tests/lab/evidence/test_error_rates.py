"""How often many statements are wrong together, simulated where the truth is known."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from acpc.arrays import NDArray
from acpc_client import Evidence, EvidenceOptions, Outcome
from acpc_lab.evidence import (
    Family,
    all_hold,
    at_epoch,
    benjamini_hochberg,
    benjamini_yekutieli,
    holm,
)
from client_messages import sure

SWEEPS, CHECKPOINTS, SHIFTS, LEVEL = 4000, 6, 4, 0.05
RUNS, EPOCHS = 60, 40


def most(runs: int) -> float:
    """Three standard errors above a share of 5 % among so many."""
    return LEVEL + 3 * (LEVEL * (1 - LEVEL) / runs) ** 0.5


def p_values(truth: NDArray[np.float64], dependence: float) -> NDArray[np.float64]:
    """One-sided p-values of normal measurements, (sweeps, *truth.shape).

    ``truth`` says how many standard errors a cell lies beyond its threshold, at most 0 where it
    does not pass. Cells share anchors: any two correlate by ``dependence``.
    """
    random = np.random.default_rng(2026)
    common = random.standard_normal((SWEEPS, *(1,) * truth.ndim))
    own = random.standard_normal((SWEEPS, *truth.shape))
    seen = truth + np.sqrt(dependence) * common + np.sqrt(1 - dependence) * own
    return np.vectorize(NormalDist().cdf)(-seen)


def share(wrong: list[bool]) -> float:
    return sum(wrong) / len(wrong)


@pytest.mark.parametrize("dependence", [0.0, 0.6])
def test_at_most_one_sweep_in_twenty_names_a_cell_that_does_not_pass(dependence: float) -> None:
    """Half of the cells lie at the boundary and half pass by far: the hardest case for Holm."""
    truth = np.zeros(CHECKPOINTS * SHIFTS)
    truth[::2] = 4.0
    measured = p_values(truth, dependence).tolist()
    at_threshold = np.flatnonzero(truth == 0).tolist()
    corrected = [holm(p) for p in measured]
    assert share([any(p[i] <= LEVEL for i in at_threshold) for p in corrected]) <= most(SWEEPS)
    # What correction is for: without it, far more of them name one.
    assert share([any(p[i] <= LEVEL for i in at_threshold) for p in measured]) > 3 * LEVEL


def test_passes_under_every_shift_needs_no_correction_over_shifts() -> None:
    """Every checkpoint lies at the threshold under one shift and passes the others by far."""
    truth = np.full((CHECKPOINTS, SHIFTS), 6.0)
    truth[:, 0] = 0.0
    everywhere = [[all_hold(shifts) for shifts in sweep] for sweep in p_values(truth, 0.3).tolist()]
    first = share([p[0] <= LEVEL for p in everywhere])
    assert LEVEL / 2 < first <= most(SWEEPS)  # of one checkpoint: the whole level is used
    assert share([min(p) <= LEVEL for p in everywhere]) > 2 * LEVEL
    assert share([min(holm(p)) <= LEVEL for p in everywhere]) <= most(SWEEPS)


@pytest.mark.parametrize("dependence", [0.0, 0.6])
def test_of_the_cells_that_are_named_one_in_twenty_does_not_pass_at_most(dependence: float) -> None:
    """On average over sweeps; independent at the boundary half of one in twenty, as proven."""
    truth = np.zeros(CHECKPOINTS * SHIFTS)
    truth[::2] = 3.0
    measured = p_values(truth, dependence).tolist()

    def named(adjust: Callable[[Sequence[float]], list[float]]) -> tuple[float, float]:
        """The mean share of wrong ones among those named, and how many rightly are."""
        found = [np.array(adjust(p)) <= LEVEL for p in measured]
        wrong = [float(one[truth == 0].sum() / max(1, one.sum())) for one in found]
        error = float(np.std(wrong)) / SWEEPS**0.5
        assert np.mean(wrong) <= LEVEL / 2 + 3 * error
        if not dependence and adjust is benjamini_hochberg:
            assert np.mean(wrong) >= LEVEL / 2 - 3 * error
        return float(np.mean(wrong)), float(np.mean([one[truth > 0].sum() for one in found]))

    shares, powers = zip(*map(named, (benjamini_hochberg, benjamini_yekutieli, holm)), strict=True)
    assert powers[0] > max(powers[1:])  # what it is for
    assert shares[1] < shares[0]


def test_where_cells_depend_badly_yekutieli_holds_and_hochberg_does_not() -> None:
    """The worst case of Guo and Rao (2008): of 8 true hypotheses, by chance k are at k q / 8."""
    n, level, random = 8, 0.3, np.random.default_rng(7)
    harmonic, sweeps = sum(1 / k for k in range(1, n + 1)), 20_000
    wrong = np.zeros(2)
    for _ in range(sweeps):
        p = np.full(n, 1.0)
        u, size = random.random(), 0
        for k in range(1, n + 1):  # k of them lie in ((k-1) q/n, k q/n] with chance q / k
            u -= level / k
            if u < 0:
                size = k
                break
        low = size * level / n if size else level
        p[:] = level + (1 - level) * random.random(n)
        p[random.permutation(n)[:size]] = low - level / n * random.random(size)
        wrong += [min(adjust(p.tolist())) <= level
                  for adjust in (benjamini_hochberg, benjamini_yekutieli)]  # fmt: skip
    rates = wrong / sweeps
    assert rates[0] == pytest.approx(level * harmonic, abs=0.02)
    assert rates[1] <= level + 0.01


def epoch_of(p_values: list[float], confidence: float) -> list[Evidence]:
    """The cells of one epoch, whose p-values are against "it passes"."""
    cell = Evidence.from_message(sure(0))
    outcomes = [Outcome.FAILED if p <= 1 - confidence else Outcome.UNDECIDED for p in p_values]
    return [
        replace(cell, confidence=confidence, confident_outcome=outcome, p_failed=p)
        for p, outcome in zip(p_values, outcomes, strict=True)
    ]


def says_failed(cells: list[Evidence]) -> bool:
    return any(one.outcome is Outcome.FAILED for one in Family(cells).each())


def test_a_whole_run_is_wrongly_said_to_fail_as_rarely_as_one_epoch() -> None:
    """Every epoch lies at the boundary, where a p-value is uniform, and epochs are independent."""
    drawn = np.random.default_rng(15).uniform(size=(RUNS, EPOCHS, 2)).tolist()
    asked = [at_epoch(EvidenceOptions(), k, 20).confidence for k in range(EPOCHS)]
    runs = [[epoch_of(*one) for one in zip(run, asked, strict=True)] for run in drawn]
    wrong = [any(map(says_failed, run)) for run in runs]
    assert sum(wrong) / RUNS <= most(RUNS)
    assert sum(wrong) > 0, "the error is spent, not kept"
    together = [says_failed([cell for epoch in run for cell in epoch]) for run in runs]
    assert together == wrong, "a report of the run says what was said of its epochs"
    alone = [[epoch_of(p_values, 0.95) for p_values in run] for run in drawn]
    assert sum(any(map(says_failed, run)) for run in alone) / RUNS > 0.5, "what it is for"
