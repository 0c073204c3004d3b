"""Candidate pools, random and adversarial, on which certificates are judged."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from acpc.arrays import NDArray
from acpc_server.numerics.cost_bounds import (
    PoolBounds,
    elite_certificate,
    elite_indices,
    excess_cost,
    top1_certificate,
)

Array = NDArray[np.float64]
# Clean latents (n, *axes, d), perturbed ones (n, views, *axes, d) and goals (n, d).
Pools = tuple[Array, Array, Array]


def float32(values: Array) -> Array:
    return values.astype(np.float32).astype(np.float64)


def bfloat16(values: Array) -> Array:
    bits = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


@dataclass(frozen=True)
class Families:
    """Makes pools of candidates, and steps where costs have several.

    Attributes:
        views: Perturbed pools of each clean one.
        axes: Candidates; or candidates and steps.
        positive: Whether the margin of (clean, perturbed, goal) is above zero, one view a pool.
        width: Of the latents; None: as each family likes.
    """

    views: int
    axes: tuple[int, ...]
    positive: Callable[[Array, Array, Array], NDArray[np.bool_]]
    width: int | None = None

    def _latents(self, rng: np.random.Generator, rows: int, width: int) -> tuple[Array, Array]:
        width = self.width or width
        return rng.normal(size=(rows, *self.axes, width)), rng.normal(size=(rows, width))

    def _each(self, rows: int) -> tuple[int, ...]:
        return (rows, self.views, *[1] * (len(self.axes) + 1))

    def _sizes(self, rng: np.random.Generator, rows: int, low: float, high: float) -> Array:
        return 10.0 ** rng.uniform(low, high, size=self._each(rows))

    def _shifts(self, rng: np.random.Generator, clean: Array, low: float, high: float) -> Array:
        noise = rng.normal(size=(len(clean), self.views, *clean.shape[1:]))
        return clean[:, None] + self._sizes(rng, len(clean), low, high) * noise

    def ordinary(self, rng: np.random.Generator, rows: int) -> Pools:
        """float32 latents, perturbations from invisible to large."""
        clean, goal = self._latents(rng, rows, 4)
        return float32(clean), float32(self._shifts(rng, clean, -9, 1)), float32(goal)

    def coarse(self, rng: np.random.Generator, rows: int) -> Pools:
        """bfloat16 latents, where candidates and costs often coincide."""
        clean, goal = self._latents(rng, rows, 2)
        return bfloat16(clean), bfloat16(self._shifts(rng, bfloat16(clean), -4, 0)), bfloat16(goal)

    def grid(self, rng: np.random.Generator, rows: int) -> Pools:
        """Small integers: equal and mirrored candidates, margins that are exactly zero."""
        width = self.width or 2
        clean = rng.integers(-4, 5, size=(rows, *self.axes, width)).astype(float)
        still = [1] * len(self.axes)
        moved = rng.random((rows, self.views, self.axes[0], *still)) < 0.2
        steps = rng.integers(-1, 2, size=(rows, self.views, *clean.shape[1:]))
        return clean, clean[:, None] + moved * steps, np.zeros((rows, width))

    def near_tie(self, rng: np.random.Generator, rows: int) -> Pools:
        """Perturbations scaled until the margin is zero, then moved by a few roundings."""
        clean, goal = self._latents(rng, rows, 3)
        direction, one = rng.normal(size=clean.shape), self._each(rows)[2:]
        low, high = np.zeros(rows), np.full(rows, 8.0)
        for _ in range(66):
            middle = (low + high) / 2
            moved = clean + middle.reshape(rows, *one) * direction
            positive = self.positive(clean, moved, goal)
            low, high = np.where(positive, middle, low), np.where(positive, high, middle)
        nudges = rng.integers(-40, 41, size=self._each(rows)) * self._sizes(rng, rows, -17, -13)
        scale = low.reshape(rows, 1, *one) * (1 + nudges)
        return clean, clean[:, None] + scale * direction[:, None], goal

    def cancelling(self, rng: np.random.Generator, rows: int) -> Pools:
        """Endpoints and goal far from the origin, close to each other."""
        near, goal = self._latents(rng, rows, 4)
        centre = 1e6 * rng.normal(size=goal.shape)
        clean = centre.reshape(rows, *[1] * len(self.axes), -1) + 1e-6 * near
        return clean, self._shifts(rng, clean, -18, -6), centre + 1e-6 * goal

    def equal(self, rng: np.random.Generator, rows: int) -> Pools:
        """Some candidates coincide, some differ by one rounding, under both histories."""
        clean, goal = self._latents(rng, rows, 3)
        clean[:, 1] = clean[:, 0]
        clean[:, 2] = np.nextafter(clean[:, 0], np.inf)
        perturbed, half = self._shifts(rng, clean, -17, -1), self.views // 2
        perturbed[:, :half] = clean[:, None]
        perturbed[:, half:, 1] = perturbed[:, half:, 0]
        return clean, perturbed, goal

    def scaled(self, rng: np.random.Generator, rows: int) -> Pools:
        """Near ties at any power of two, until squares underflow or overflow."""
        factor = 2.0 ** rng.integers(-560, 505, size=rows).astype(float)
        clean, perturbed, goal = (
            part * factor.reshape(rows, *[1] * (part.ndim - 1)) for part in self.near_tie(rng, rows)
        )
        return clean, perturbed, goal


@dataclass(frozen=True)
class Said:
    """What the server says of pools (n,) under views: choices (n, k), the rest is (n, views)."""

    elites: NDArray[np.int64]
    certified: NDArray[np.bool_]
    margin: Array

    @classmethod
    def of(cls, bounds: list[PoolBounds], count: int) -> "Said":
        """Certificates of the winners or elite sets; what is reported beside them is checked."""
        elites, found = [], []
        for pool in bounds:
            found.append(elite_certificate(pool, count) if count > 1 else top1_certificate(pool))
            elites.append(elite_indices(pool.clean_costs, count))
            if torch.isfinite(pool.bounds).all():
                check_reported(pool, found[-1].certified, elites[-1])
        certified = np.stack([one.certified.numpy() for one in found])
        margin = np.stack([one.margin.numpy() for one in found])
        assert np.array_equal(certified, margin > 0)
        return cls(np.stack([one.numpy() for one in elites]), certified, margin)

    def check(
        self,
        exact: NDArray[np.longdouble],
        error: NDArray[np.longdouble],
        exactly: Callable[[int, int], tuple[Fraction, Fraction]],
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """No certificate is false, no margin too large; which margins are positive, which lost.

        Margins are known to within ``error``; ``exactly`` encloses that of a pool and view, where
        this leaves it open.
        """
        true = exact > error
        proven = true & (self.margin <= exact - error)
        for row, view in zip(*np.nonzero(self.certified & ~proven), strict=True):
            low, high = exactly(row, view)
            assert low > 0
            assert self.margin[row, view] <= high
        lost = true & ~self.certified
        print(f"{lost.sum()} of {true.sum()} true ones lost")
        return true, lost


def check_reported(bounds: PoolBounds, certified: torch.Tensor, elites: torch.Tensor) -> None:
    """Reported bounds hold for the reported costs, to the last bit.

    Where certified, a planner that sorts the computed costs selects the same.
    """
    excess, feasible = excess_cost(bounds), torch.isfinite(bounds.clean_costs)
    moved = (bounds.perturbed_costs - bounds.clean_costs).abs()[..., feasible]
    assert (moved <= bounds.bounds[..., feasible]).all()
    assert (excess.excess >= 0).all()
    assert (excess.excess <= excess.bound).all()
    seen = elite_indices(bounds.perturbed_costs[certified], len(elites))
    assert torch.equal(seen.sort().values, elites.sort().values.expand_as(seen))
