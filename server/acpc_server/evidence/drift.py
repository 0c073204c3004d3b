"""Tests whether live observations still come from where a reference did, after each of them.

**The test.** A conformal test martingale (Vovk, Nouretdinov and Gammerman 2003). The smoothed
conformal p-value of an observation is its rank among all before it, the reference included, with
ties broken at random. While observations are exchangeable these p-values are independent and
uniform, whatever the distribution and however small the reference. So each density on [0, 1] is a
fair bet against them, and the capital of who bets is a martingale: by Ville's inequality the
probability that it ever reaches 1 / alpha, over a life of any length, is at most alpha.

Several bets are mixed, and so are the moments at which betting begins: Shiryaev's statistic with
the prior 1 / (k (k + 1)) for observation k. What has not begun is kept, so a long quiet life delays
an alarm by the logarithm of its length only. Values are compared on a fixed logarithmic grid,
which bounds the state and leaves the p-values exact.

**What it needs.** Exchangeable means: independent of each other, without a trend. Sessions of one
episode resemble each other, so only every so-many-th is an observation. A :class:`Calibration`
doubles that spacing for as long as the reference shows that neighbours resemble each other.
docs/operate/drift.md has simulations of what is left.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int

# Values are told apart between these two, to 4 %.
LEAST, MOST, CELLS = 1e-9, 1e9, 1024
# Beta densities: bets on small and on large p-values, on both, and on neither.
BETS = np.array([(0.3, 1), (1, 0.3), (0.6, 1.4), (1.4, 0.6), (0.5, 0.5), (3, 3)])
MAX_PERSISTENCE = 0.05
MAX_SPACING = 4096


@dataclass(frozen=True)
class DriftTerms:
    """Parameters of the drift monitor."""

    observations: int = 200  # in a reference
    spacing: int = 50  # sessions from one observation to the next, at least
    alpha: float = 0.001  # chance, at most, that a life without drift ever raises an alarm


@dataclass(frozen=True)
class Reference:
    """What observations looked like: values in their order, a column a signal, on the grid."""

    values: Float64[np.ndarray, "observations signals"]
    spacing: int  # sessions from one observation to the next


class Calibration:
    """Collects a reference; ``spacing`` sessions lie from one observation to the next."""

    def __init__(self, terms: DriftTerms) -> None:
        self._size = terms.observations
        self._rows: list[tuple[float, ...]] = []
        self.spacing = terms.spacing

    def add(self, row: Sequence[float]) -> Reference | None:
        """Add the next observation; return the reference once it is complete."""
        self._rows.append(tuple(map(clipped, row)))
        if len(self._rows) < self._size:
            return None
        values = np.array(self._rows)
        if persistence(values).max() <= MAX_PERSISTENCE or 2 * self.spacing > MAX_SPACING:
            return Reference(values, self.spacing)
        del self._rows[-2::-2]  # the newest stays: the next is counted from it
        self.spacing *= 2
        return None


def clipped(value: float) -> float:
    """Return a value as it is compared: within the grid's ends, NaN as the largest."""
    return MOST if math.isnan(value) else min(max(value, LEAST), MOST)


def persistence(
    values: Float64[np.ndarray, "observations signals"],
) -> Float64[np.ndarray, "signals"]:
    """Measure how long observations resemble those before: sums of their rank autocorrelations.

    Over lags up to an eighth of their number, with Bartlett's weights. About 0 without dependence;
    twice this is by how much it inflates the variance of a mean.
    """
    count = len(values)
    # Ties share a rank. Importing SciPy's rankdata is a tenth of a server's start.
    columns = [(np.sort(column), column) for column in values.T]
    below = [np.searchsorted(among, column) for among, column in columns]
    upto = [np.searchsorted(among, column, "right") for among, column in columns]
    ranks = np.add(below, upto).T / 2
    ranks -= ranks.mean(axis=0)
    spread = (ranks**2).sum(axis=0)
    lags = range(1, max(2, count // 8))
    total = sum((1 - lag / len(lags)) * (ranks[lag:] * ranks[:-lag]).sum(axis=0) for lag in lags)
    per_signal: Float64[np.ndarray, "signals"] = np.divide(
        total, spread, out=np.zeros_like(spread), where=spread > 0
    )
    return per_signal


class DriftTest:
    """The test of one signal; ``random`` breaks ties."""

    def __init__(
        self, reference: Float64[np.ndarray, "observations"], random: np.random.Generator
    ) -> None:
        self._counts = np.bincount(_cells(reference), minlength=CELLS)
        self._random = random
        self._betting = np.zeros(len(BETS))  # capital of the bets that have begun
        self._observations = 0

    def observe(self, value: float) -> float:
        """Bet against the next value; return the logarithm of the capital, which began at 1."""
        (cell,) = _cells(np.array([clipped(value)]))
        self._counts[cell] += 1
        larger = self._counts[cell + 1 :].sum()
        tie = 1.0 - self._random.random()  # in (0, 1]
        p = float((larger + tie * self._counts[cell]) / self._counts.sum())
        self._observations += 1
        k = self._observations
        self._betting = _densities(p) * (self._betting + 1 / (k * (k + 1)))
        return math.log(float(self._betting.mean()) + 1 / (k + 1))


class DriftWatch:
    """Seeks drift of some signals that are observed together.

    Attributes:
        reference: What they are compared with, maybe of an earlier calibration; None while it is
            collected.
        log_evidence: Of each signal's test; while its alarm stands, the largest since the alarm.
        alarms: Whether each signal has drifted: from its alarm, at which its test starts again,
            until as many observations as the reference has have raised none.
    """

    def __init__(
        self, terms: DriftTerms, signals: int, reference: Reference | None = None, seed: int = 0
    ) -> None:
        self.log_evidence = [0.0] * signals
        self.alarms = [False] * signals
        # For each signal, so that alpha holds for all (Bonferroni).
        self.level = math.log(signals / terms.alpha)
        self._calibration = Calibration(terms)
        self._random = np.random.default_rng(seed)
        self._quiet = [0] * signals  # observations since the alarm
        self._passing = 0  # sessions until the next observation
        self._tests: list[DriftTest] = []
        self.reference = reference
        if reference is not None:
            self._tests = [self._test(reference, signal) for signal in range(signals)]

    def observe(self, row: Sequence[float]) -> bool:
        """Take the signals of the next session; return whether it was an observation."""
        if self._passing:
            self._passing -= 1
            return False
        if self.reference is None:
            self.reference = self._calibration.add(row)
            if self.reference is not None:
                signals = range(len(row))
                self._tests = [self._test(self.reference, signal) for signal in signals]
        else:
            for signal, value in enumerate(row):
                self._judge(self.reference, signal, value)
        self._passing = (self.reference or self._calibration).spacing - 1
        return True

    def _judge(self, reference: Reference, signal: int, value: float) -> None:
        evidence = self._tests[signal].observe(value)
        self._quiet[signal] += 1
        if evidence >= self.level:
            self.alarms[signal] = True
            self._quiet[signal] = 0
            self._tests[signal] = self._test(reference, signal)
        elif self._quiet[signal] >= len(reference.values):
            self.alarms[signal] = False
        highest = max(evidence, self.log_evidence[signal])
        self.log_evidence[signal] = highest if self.alarms[signal] else evidence

    def _test(self, reference: Reference, signal: int) -> DriftTest:
        return DriftTest(reference.values[:, signal], self._random)


def _cells(values: Float64[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
    share = np.log(values / LEAST) / math.log(MOST / LEAST)
    cells: Int[np.ndarray, "n"] = np.minimum((share * CELLS).astype(np.intp), CELLS - 1)
    return cells


def _densities(p: float) -> Float64[np.ndarray, "bets"]:
    p = min(p, 1 - 1e-12)  # at 1 some are infinite
    densities: Float64[np.ndarray, "bets"] = np.exp(
        (BETS - 1) @ np.array([math.log(p), math.log1p(-p)]) - _NORMS
    )
    return densities


_NORMS = np.array([math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b) for a, b in BETS])
