"""Bounds how large a share of all draws leaves a choice unchanged, from some draws.

Of ``n`` independent draws ``c`` change the choice. Let ``t`` be the unknown rate of change, so that
the coverage is 1 - t. Two one-sided bounds of it are kept, each wrong with a chance of at most
``error``; since the true coverage lies on one side of the goal, a decision is too.

**One look.** For a number of draws that was fixed beforehand, the bounds of Clopper and Pearson
(Biometrika 26, 1934), which are exact. 149 draws without a change are the fewest that show a
coverage of 98 % at a confidence of 95 %.

**Many looks.** Robbins' beta-binomial mixture (Ann. Math. Statist. 41, 1970; Howard, Ramdas,
McAuliffe and Sekhon, Ann. Statist. 49, 2021). With a Beta(a, b) density w over rates s,

    M_n(t) = integral of s^c (1 - s)^(n - c) w(s) ds / (t^c (1 - t)^(n - c))
           = B(a + c, b + n - c) / B(a, b) / (t^c (1 - t)^(n - c))

is a martingale that begins at 1 where t is the true rate, so it ever reaches 1 / error with a
chance of at most ``error`` (Ville). The bound of the rate from above is the t > c / n at which
M_n(t) = 1 / error, from below the t < c / n. Beyond c / n M_n(t) grows with the distance of t, so
that each bound holds for all rates on its side, at every n together, however drawing is stopped.

For the bound from above, w is Beta(1/2, 2 / t0) with t0 = 1 - coverage, whose mean is t0 / 4; from
below it is Beta(1/2, 1/2). docs/certificates.md compares the draws this takes with other choices.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass, field

from acpc.contract import CoverageOutcome
from scipy.optimize import brentq
from scipy.special import betaincinv, betaln

LOW_RATES_WEIGHT = 2.0
"""b of the mixture that bounds rates from above, in units of 1 / t0."""
TINY, EPSILON = 1e-300, 2.0**-53
"""Nearest to 0 and to 1 that logarithms are taken."""


def error_share(error: float, pool: int, pools: int) -> float:
    """Return what the pool-th of ``pools`` may take of an error, from 1; of unknown many, where 0.

    All shares together are the error, since the sum of 6 / (pi^2 k^2) over all k is 1.
    """
    if not pools:
        return error * 6.0 / (math.pi * pool) ** 2
    return error / pools if pool <= pools else 0.0


@dataclass(frozen=True)
class CoverageTest:
    """Goal of a test: the share of draws that leave the choice unchanged."""

    coverage: float  # in (0, 1)
    error: float  # chance of a wrong decision, in (0, 1)
    max_draws: int
    one_look: bool = False  # look once, when all draws are there

    def bounds(self, draws: int, changed: int) -> tuple[float, float]:
        """Bound the coverage from below and from above, in one look."""
        return 1.0 - self._rate_above(draws, changed), 1.0 - self._rate_below(draws, changed)

    def fewest(self, changed: int) -> int | None:
        """Return the fewest draws that show the coverage with so many changes; None: too many."""
        # At a rate below the goal's, each draw without a change makes the bound better.
        candidates = range(int(changed / (1.0 - self.coverage)) + 1, self.max_draws + 1)
        index = bisect_left(candidates, True, key=lambda n: self._shown(n, changed))
        return candidates[index] if index < len(candidates) else None

    def _shown(self, draws: int, changed: int) -> bool:
        return changed <= draws and 1.0 - self._rate_above(draws, changed) >= self.coverage

    def _rate_above(self, draws: int, changed: int) -> float:
        if changed >= draws:
            return 1.0
        if self.one_look:
            return float(betaincinv(changed + 1, draws - changed, 1.0 - self.error))
        prior = 0.5, LOW_RATES_WEIGHT / (1.0 - self.coverage)
        return self._crossing(draws, changed, prior, (changed / draws, 1.0))

    def _rate_below(self, draws: int, changed: int) -> float:
        if not changed:
            return 0.0
        if self.one_look:
            return float(betaincinv(changed, draws - changed + 1, self.error))
        return self._crossing(draws, changed, (0.5, 0.5), (changed / draws, 0.0))

    def _crossing(
        self, draws: int, changed: int, prior: tuple[float, float], between: tuple[float, float]
    ) -> float:
        """Find the rate at which the mixture reaches 1 / error, from the observed one to 0 or 1."""
        a, b = prior
        observed, extreme = between
        mixed = betaln(a + changed, b + draws - changed) - betaln(a, b) + math.log(self.error)

        def log_martingale(rate: float) -> float:
            kept = (draws - changed) * math.log1p(-rate) if draws > changed else 0.0
            moved = changed * math.log(rate) if changed else 0.0
            return float(mixed - moved - kept)

        start, end = (min(max(rate, TINY), 1.0 - EPSILON) for rate in between)
        if log_martingale(end) <= 0:  # not even there
            return extreme
        if log_martingale(start) >= 0:  # which only rounding at 0 or 1 can cause
            return observed
        return float(brentq(log_martingale, start, end, xtol=1e-12))


@dataclass
class CoverageSequence:
    """The draws so far and what they show; a bound that once held stays."""

    test: CoverageTest
    draws: int = field(default=0, init=False)
    changed: int = field(default=0, init=False)
    looks: int = field(default=0, init=False)
    lower: float = field(default=0.0, init=False)  # bounds of the coverage
    upper: float = field(default=1.0, init=False)

    def add(self, draws: int, changed: int) -> None:
        """Look at the sequence after more draws, of which some changed the choice."""
        self.draws += draws
        self.changed += changed
        if self.test.one_look and self.draws < self.test.max_draws:
            return
        lower, upper = self.test.bounds(self.draws, self.changed)
        self.looks += 1
        self.lower, self.upper = max(self.lower, lower), min(self.upper, upper)

    @property
    def outcome(self) -> CoverageOutcome:
        """The outcome that the draws show."""
        if self.lower >= self.test.coverage:
            return CoverageOutcome.HOLDS
        if self.upper < self.test.coverage:
            return CoverageOutcome.FAILS
        return CoverageOutcome.UNDECIDED

    def wanted(self) -> int:
        """Return the draws until the next look that may show the coverage; 0: none will."""
        if self.test.one_look:
            return self.test.max_draws - self.draws
        fewest = self.test.fewest(self.changed)
        return 0 if fewest is None else max(1, fewest - self.draws)
