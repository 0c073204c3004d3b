"""The drift alarm: how often it is false, how soon it comes, and what it needs."""

import math

import numpy as np
import pytest
from acpc_server.evidence import DriftTerms, DriftWatch, Reference, drift
from scipy.signal import lfilter
from scipy.stats import beta, rankdata

Values = np.ndarray
ALPHA = 0.05


def alarmed(watch: DriftWatch, values: Values) -> int | None:
    """Sessions up to the first alarm."""
    for session, value in enumerate(values):
        watch.observe([value])
        if any(watch.alarms):
            return session + 1
    return None


def calibrated(values: Values) -> Reference:
    return Reference(np.array([drift.clipped(value) for value in values])[:, None], 1)


def autoregressive(rng: np.random.Generator, count: int, correlation: float) -> Values:
    steps = rng.standard_normal(count + 1) * math.sqrt(1 - correlation**2)
    steps[0] /= math.sqrt(1 - correlation**2)
    return np.exp(lfilter([1], [1, -correlation], steps))[1:]


def test_a_life_without_drift_rarely_raises_an_alarm_however_small_its_reference() -> None:
    """Of 100 lives of 200 looks at most alpha should; the bound leaves room for chance."""
    lives, terms = 40, DriftTerms(20, 1, ALPHA)
    false = 0
    for seed in range(lives):
        values = np.random.default_rng(seed).lognormal(size=220)
        watch = DriftWatch(terms, 1, calibrated(values[:20]), seed)
        false += alarmed(watch, values[20:]) is not None
    assert false <= 2 * ALPHA * lives


@pytest.mark.parametrize(
    ("shift", "spread", "within"), [(2.0, 1.0, 40), (-2.0, 1.0, 40), (0.0, 3.0, 60), (0.0, 0.2, 60)]
)
def test_an_alarm_comes_soon_after_a_change(shift: float, spread: float, within: int) -> None:
    """To larger and to smaller values, to a wider and to a narrower law, after a quiet life."""
    delays = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        watch = DriftWatch(DriftTerms(alpha=0.001), 1, calibrated(rng.lognormal(size=200)), seed)
        assert alarmed(watch, rng.lognormal(size=200)) is None
        changed = np.exp(shift + spread * rng.standard_normal(300))
        delays.append(alarmed(watch, changed) or math.inf)
    assert np.median(delays) <= within


def test_observations_are_spaced_until_neighbours_do_not_resemble_each_other() -> None:
    terms = DriftTerms(100, 1, ALPHA)
    false, spacings = 0, []
    for seed in range(15):
        values = autoregressive(np.random.default_rng(seed), 20_000, 0.9)
        watch = DriftWatch(terms, 1, None, seed)
        false += alarmed(watch, values) is not None
        spacings.append(watch.reference.spacing)
    assert false <= 3
    assert 8 <= np.median(spacings) <= 64


def test_without_spacing_sessions_of_an_episode_would_raise_false_alarms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drift, "MAX_SPACING", 1)
    terms = DriftTerms(100, 1, ALPHA)
    runs = [autoregressive(np.random.default_rng(seed), 600, 0.9) for seed in range(10)]
    false = [alarmed(DriftWatch(terms, 1, None, 0), values) for values in runs]
    assert sum(found is not None for found in false) >= 5


def test_persistence_is_of_ranks_and_ties_share_one() -> None:
    values = np.random.default_rng(8).integers(0, 5, (40, 3)).astype(np.float64)
    ranks = rankdata(values, axis=0)
    ranks -= ranks.mean(axis=0)
    lags = [(1 - lag / 4) * (ranks[lag:] * ranks[:-lag]).sum(axis=0) for lag in range(1, 5)]
    wanted = np.sum(lags, axis=0) / (ranks**2).sum(axis=0)
    np.testing.assert_allclose(drift.persistence(values), wanted, rtol=1e-12)


def test_the_capital_is_that_of_many_bettors_who_begin_at_different_times() -> None:
    everything = np.random.default_rng(3).permutation(1.1 ** np.arange(50))  # each in its own cell
    reference, values = everything[:20], everything[20:]
    test = drift.DriftTest(reference, np.random.default_rng(5))
    ties = np.random.default_rng(5)
    seen = list(reference)
    ps: list[float] = []
    for value in values:
        found = test.observe(value)
        seen.append(value)
        larger = sum(other > value for other in seen)
        ps.append((larger + 1 - ties.random()) / len(seen))
        capital = 1 / (len(ps) + 1)
        for begin in range(len(ps)):
            share = 1 / ((begin + 1) * (begin + 2))
            factors = [np.prod(beta.pdf(ps[begin:], a, b)) for a, b in drift.BETS]
            capital += share * float(np.mean(factors))
        assert found == pytest.approx(math.log(capital), rel=1e-9)


def test_equal_values_are_no_drift() -> None:
    """An unchanged view moves nothing, ever."""
    watch = DriftWatch(DriftTerms(20, 1, ALPHA), 1)
    assert alarmed(watch, np.zeros(500)) is None
    assert watch.reference.spacing == 1


def test_an_alarm_stays_while_it_is_true_and_clears_when_the_drift_is_over() -> None:
    rng = np.random.default_rng(0)
    reference = Reference(rng.lognormal(size=(50, 2)), 1)
    watch = DriftWatch(DriftTerms(50, 1, ALPHA), 2, reference)
    for row in rng.lognormal(size=(300, 2)) * [1, 100]:
        watch.observe(row)
    assert watch.alarms == [False, True]
    for row in rng.lognormal(size=(400, 2)):
        watch.observe(row)
    assert watch.alarms == [False, False]


def test_the_evidence_of_an_alarm_stays_while_the_alarm_does() -> None:
    """The test starts again at its alarm; whoever reads now and then would miss the crossing."""
    rng = np.random.default_rng(0)
    watch = DriftWatch(DriftTerms(50, 1, ALPHA), 1, Reference(rng.lognormal(size=(50, 1)), 1))
    values = 100 * rng.lognormal(size=(60, 1))
    first = alarmed(watch, values[:, 0])
    assert first is not None and watch.log_evidence[0] >= watch.level
    for row in rng.lognormal(size=(49, 1)):
        watch.observe(row)
        assert watch.alarms[0] and watch.log_evidence[0] >= watch.level
    watch.observe([1.0])
    assert not watch.alarms[0] and watch.log_evidence[0] < watch.level


def test_values_beyond_the_grid_count_as_its_ends() -> None:
    watch = DriftWatch(DriftTerms(20, 1, ALPHA), 1)
    for value in (math.nan, math.inf, -math.inf, 0.0, -1.0, 1e300) * 10:
        watch.observe([value])
    assert math.isfinite(watch.log_evidence[0])


def test_only_spaced_sessions_are_observations() -> None:
    watch = DriftWatch(DriftTerms(20, 10), 1)
    assert [watch.observe([1.0]) for _ in range(21)].count(True) == 3
