"""Certificates with confidence: how often they are wrong, the draws they take, what a draw costs.

    python benchmarks/evidence.py certificates [--pools 10000] [--moments 12]

Wrong statements are counted over pools of two candidates whose cost gap moves by a normal amount in
every draw, so that the share of draws which keep the winner is known and lies just below the goal.
Ways to look are compared by exact computation over all sequences of draws. Costs are those of the
demo's model on this machine; ratios are within one run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from acpc.contract import (
    CheckpointRef,
    CoverageGoal,
    CoverageOutcome,
    GaussianNoise,
    PerturbationSet,
    PoolRequest,
)
from acpc_server.engine import CheckpointCache, DeviceClient
from acpc_server.evidence import CoverageTest
from acpc_server.interactive import Planner, certify_pool, cover_pool
from acpc_server.models.folder import CheckpointLimits
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from common import CHECKPOINTS
from scipy.special import betaln
from scipy.stats import binom, norm
from world import FRAMESKIP, render

MODELS = "two-room-base", "two-room-augmented"
COVERAGE, ERROR, MOST = 0.98, 0.05, 1000
BELOW = 0.9799  # just below the goal
RATES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.3)
CANDIDATES, HORIZON, ELITES = 64, 5, 8
SIGMAS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
Limit = Callable[[int], int]


def wrong(pools: int) -> dict[str, Any]:
    """Pools of a true coverage just below the goal that are said to hold, at one look and many."""
    rng = np.random.default_rng(0)
    gap = norm.ppf(BELOW)  # in standard deviations of its change
    found = {}
    for name, test in {
        "one look at 149": CoverageTest(COVERAGE, ERROR, 149, one_look=True),
        "one look at 400": CoverageTest(COVERAGE, ERROR, 400, one_look=True),
        "a look after every draw": CoverageTest(COVERAGE, ERROR, MOST),
    }.items():
        needed = [test.fewest(c) or MOST + 1 for c in range(50)]
        held = 0
        for _ in range(pools):
            changed = (gap + rng.standard_normal(test.max_draws) < 0).cumsum()
            if test.one_look:
                held += test.bounds(test.max_draws, int(changed[-1]))[0] >= COVERAGE
            else:
                within = np.minimum(changed, len(needed) - 1)
                held += bool((np.arange(1, MOST + 1) >= np.take(needed, within)).any())
        found[name] = {"pools": pools, "wrong": int(held), "share": held / pools}
    return found


def mixture(weight: float, a: float = 0.5) -> Callable[[int, int], float]:
    """Log of the mixture martingale at the goal with a Beta(a, weight / t0) density."""
    goal = 1 - COVERAGE
    b = weight / goal

    def log(n: int, c: int) -> float:
        kept = (n - c) * np.log1p(-goal) + c * np.log(goal)
        return float(betaln(a + c, b + n - c) - betaln(a, b) - kept)

    return log


def at_any_time(weight: float, a: float = 0.5) -> Limit:
    """Most changes with which a mixture shows the goal after n draws; -1: none."""
    log = mixture(weight, a)

    def limit(n: int) -> int:
        c = -1
        while c + 1 < n * (1 - COVERAGE) and log(n, c + 1) >= -np.log(ERROR):
            c += 1
        return c

    return limit


def spending(first: int, share: float, growth: float = 1.25) -> Limit:
    """The same for looks at growing numbers of draws, the first with a share of the error.

    Exact binomial boundaries: at each look as many changes as the error spent until then allows.
    """
    looks = [first]
    while looks[-1] * growth < MOST:
        looks.append(int(looks[-1] * growth))
    looks.append(MOST)
    allowed = [
        ERROR * share + ERROR * (1 - share) * k / (len(looks) - 1) for k in range(len(looks))
    ]
    limits, weight, spent = dict.fromkeys(range(MOST + 1), -1), np.zeros(MOST + 2), 0.0
    weight[0] = 1.0
    for n in range(1, MOST + 1):
        weight[1:] = weight[1:] * COVERAGE + weight[:-1] * (1 - COVERAGE)
        weight[0] *= COVERAGE
        if n in looks:
            c = -1
            while spent + weight[c + 1] <= allowed[looks.index(n)]:
                c += 1
                spent += weight[c]
                weight[c] = 0.0
            limits[n] = c
    return limits.__getitem__


def draws_taken(limit: Limit, rate: float, fails: list[int]) -> dict[str, float]:
    """Expected draws, and the chance to say that it holds; refuted as the service does."""
    weight, mean, held = np.zeros(MOST + 2), 0.0, 0.0
    weight[0] = 1.0
    for n in range(1, MOST + 1):
        weight[1:] = weight[1:] * (1 - rate) + weight[:-1] * rate
        weight[0] *= 1 - rate
        holds = weight[: limit(n) + 1].sum()
        refuted = weight[fails[n] :].sum()
        weight[: limit(n) + 1] = weight[fails[n] :] = 0.0
        held += holds
        mean += n * (holds + refuted)
    return {"draws": float(mean + MOST * weight.sum()), "holds": float(held)}


def compared() -> dict[str, Any]:
    """Ways to look while drawing, and one look at 149 and 400, by the true rate of change."""
    test = CoverageTest(COVERAGE, ERROR, MOST)
    fails, c = [], 0
    for n in range(MOST + 1):
        while c <= n and test.bounds(max(n, 1), c)[1] >= COVERAGE:
            c += 1
        fails.append(c)
    ways = {
        "mixture Beta(1/2, 2/t0), the service's": at_any_time(2.0),
        "mixture Beta(1/2, 1/2) (Jeffreys)": at_any_time(0.5 * (1 - COVERAGE)),
        "mixture Beta(1, 1) (uniform)": at_any_time(1 - COVERAGE, 1.0),
        "spending, 79 % at 160 draws": spending(160, 0.79),
        "spending, 60 % at 174 draws": spending(174, 0.6),
        "spending, half at 183 draws": spending(183, 0.5),
    }
    found: dict[str, Any] = {}
    for name, limit in ways.items():
        cached = [limit(n) for n in range(MOST + 1)]
        found[name] = {str(rate): draws_taken(cached.__getitem__, rate, fails) for rate in RATES}
    for draws in (149, 400):
        most = at_look(draws)
        found[f"one look at {draws} draws"] = {
            str(rate): {"draws": float(draws), "holds": float(binom.cdf(most, draws, rate))}
            for rate in RATES
        }
    return found


def at_look(draws: int) -> int:
    """Most changes with which one look shows the goal; -1: none."""
    test = CoverageTest(COVERAGE, ERROR, draws, one_look=True)
    return sum(test.bounds(draws, c)[0] >= COVERAGE for c in range(draws)) - 1


@contextmanager
def admit(seconds: float) -> Any:  # noqa: ANN401 - a context manager
    yield RequestContext(Priority.INTERACTIVE, seconds)


def planners_moments(count: int) -> list[dict[str, Any]]:
    """Planners' moments in the demo's world: three frames, a goal, and a pool around the way."""
    rng = np.random.default_rng(7)
    found = []
    for _ in range(count):
        start, goal = rng.uniform(0.1, 0.4, size=(2, 2))
        pool = rng.normal(0, 1, (CANDIDATES, HORIZON, 2))
        found.append({
            "history": render(start[None]),
            "goal": render(goal[None])[0],
            "candidates": np.tile(pool, FRAMESKIP).astype(np.float32),
        })  # fmt: skip
    return found


def on_the_model(count: int) -> dict[str, Any]:
    """Draws and seconds of statements beside the plain certificate of five draws, same process."""
    metrics, device = Metrics(), torch.device("cpu")
    engine = DeviceClient(device, metrics)
    limits = CheckpointLimits()
    cache = CheckpointCache(CHECKPOINTS, device, metrics, limits=limits, budget_bytes=2**30)
    planner = Planner(engine, max_frames=4096, max_predictions=2**24)
    rows: list[dict[str, Any]] = []
    for model in MODELS:
        for sigma in SIGMAS:
            for moment in planners_moments(count):
                request = PoolRequest(
                    checkpoint=CheckpointRef(model),
                    views=PerturbationSet((GaussianNoise(sigma),), 5, 1, len(rows)),
                    elite_count=ELITES,
                    coverage_goal=CoverageGoal(max_draws=MOST),
                    **moment,
                )
                context = RequestContext(Priority.INTERACTIVE, 300.0)
                begun = time.perf_counter()
                session = planner.encode(planner.prepare(cache.get(model), request), context)
                pool = certify_pool(session, request.candidates, context)
                plain = time.perf_counter() - begun
                answer = cover_pool(pool, context, admit)
                drawn = time.perf_counter() - begun - plain
                statement = answer.coverage[0]
                most = max(statement.top1.draws, statement.elite.draws)  # type: ignore[union-attr]
                rows += [
                    {
                        "model": model,
                        "sigma": sigma,
                        "choice": choice,
                        "outcome": str(finding.outcome),
                        "stop": str(finding.stop),
                        "draws": finding.draws,
                        "changed": finding.changed,
                        "certified": finding.certified,
                        "plain_certified": sum(
                            getattr(view, choice).certified for view in answer.views
                        ),
                        "plain_seconds_per_view": plain / 6,  # five views and the clean history
                        "seconds_per_draw": drawn / most,
                        "seconds": drawn,
                    }
                    for choice, finding in (("top1", statement.top1), ("elite", statement.elite))
                ]
    engine.close()
    return {"groups": _grouped(rows), "cost": _cost(rows)}


def _grouped(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By outcome and whether any draw changed the choice."""
    kinds = {
        "stable: no draw changed it": lambda r: r["outcome"] == "holds" and not r["changed"],
        "nearly stable: it holds, with changes": lambda r: r["outcome"] == "holds" and r["changed"],
        "borderline: undecided": lambda r: r["outcome"] == "undecided",
        "unstable: it fails": lambda r: r["outcome"] == "fails",
    }
    found = []
    for name, belongs in kinds.items():
        own = [row for row in rows if belongs(row)]
        draws = [row["draws"] for row in own]
        found.append({
            "kind": name,
            "statements": len(own),
            "draws_median": float(np.median(draws)) if own else None,
            "draws_least": min(draws, default=None),
            "draws_most": max(draws, default=None),
            "changed": sum(row["changed"] for row in own),
            "certified_share": sum(r["certified"] for r in own) / max(1, sum(draws)),
            "plain_says_stable": sum(row["plain_certified"] == 5 for row in own),
        })  # fmt: skip
    return found


def _cost(rows: list[dict[str, Any]]) -> dict[str, float]:
    per_draw = [row["seconds_per_draw"] for row in rows]
    per_view = [row["plain_seconds_per_view"] for row in rows]
    return {
        "plain_ms_per_view": 1000 * float(np.median(per_view)),
        "ms_per_draw": 1000 * float(np.median(per_draw)),
        "ratio": float(np.median(np.divide(per_draw, per_view))),
        "seconds_of_stable": float(
            np.median([r["seconds"] for r in rows if r["outcome"] == str(CoverageOutcome.HOLDS)])
        ),
    }


def report(pools: int = 10_000, moments: int = 12) -> dict[str, Any]:
    """All three: errors over so many pools, and so many moments of each model and strength."""
    return {
        "goal": {"coverage": COVERAGE, "confidence": 1 - ERROR, "max_draws": MOST},
        "wrong": {"true_coverage": BELOW, **wrong(pools)},
        "ways": compared(),
        "model": on_the_model(moments),
    }
