"""CertifyPool, Plan and PlanPaired requests that can never work; shape of ``bad_pairs``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import wire
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1.tensor_pb2 import Tensor
from bad_pairs import BAD_PAIRS, INVALID, Case

DIM = 16
LATENT = wire.tensor(np.zeros(DIM, np.float32))
PAST = wire.tensor(wire.blocks(wire.HISTORY - 1))
POOL = wire.tensor(np.random.default_rng(6).standard_normal((6, 4, wire.WIDTH), np.float32))
MEAN = wire.tensor(np.zeros((4, wire.WIDTH), np.float32))
STD = wire.tensor(np.ones((4, wire.WIDTH), np.float32))


Table = list[tuple[str, dict[str, Any], str]]


def _given(fields: dict[str, Any], changed: dict[str, object]) -> dict[str, Any]:
    if "explicit_views" in changed:
        fields.pop("perturbations")
    merged = {**fields, **changed}
    return {name: value for name, value in merged.items() if value is not None}


def _moment() -> dict[str, Any]:
    return {
        "checkpoint": wire.checkpoint(),
        "history": wire.tensor(wire.frames(wire.HISTORY)),
        "past_blocks": PAST,
        "goal": {"latent": LATENT},
        "perturbations": wire.several(),
    }


def pool(**changed: object) -> pb.CertifyPoolRequest:
    """A good CertifyPoolRequest; None leaves a field out."""
    return pb.CertifyPoolRequest(**_given({**_moment(), "candidates": POOL}, changed))


def start(**changed: object) -> pb.PlanRequest:
    """A good first message of a Plan stream."""
    return pb.PlanRequest(start=_given(_moment(), changed))


def paired(**changed: object) -> pb.PlanPairedRequest:
    """A good PlanPairedRequest."""
    budget = {"candidates": 8, "elites": 2, "iterations": 2, "horizon": 3}
    return pb.PlanPairedRequest(**_given({**_moment(), "budget": budget}, changed))


def _frame(height: int, width: int) -> Tensor:
    return wire.tensor(np.zeros((height, width, 3), np.uint8))


def _floats(*shape: int, value: float = 0.0) -> Tensor:
    return wire.tensor(np.full(shape, value, np.float32))


def _none(dtype: str) -> Tensor:
    """No blocks, which is what one frame of history needs, but of a wrong type."""
    return wire.tensor(np.zeros((0, wire.WIDTH), dtype))


ONE = {"history": wire.tensor(wire.frames(1))}
# Fields of the moment that all three requests share.
MOMENTS: Table = [
    ("no-goal", {"goal": None}, "goal"),
    ("goal-empty", {"goal": {}}, "goal"),
    ("goal-size", {"goal": {"frame": _frame(27, 28)}}, "goal.frame.shape"),
    ("goal-rank", {"goal": {"frame": wire.tensor(wire.frames(1))}}, "goal.frame.shape"),
    ("goal-dtype", {"goal": {"frame": _floats(28, 28, 3)}}, "goal.frame.dtype"),
    ("goal-width", {"goal": {"latent": _floats(DIM - 1)}}, "goal.latent.shape"),
    ("goal-latent-rank", {"goal": {"latent": _floats(1, DIM)}}, "goal.latent.shape"),
    ("goal-nan", {"goal": {"latent": _floats(DIM, value=np.nan)}}, "goal.latent.data"),
    ("past-missing", {"past_blocks": None}, "past_blocks.shape"),
    ("past-short", {"past_blocks": _floats(1, wire.WIDTH)}, "past_blocks.shape"),
    ("past-width", {"past_blocks": _floats(2, 9)}, "past_blocks.shape"),
    ("past-nan", {"past_blocks": _floats(2, wire.WIDTH, value=np.nan)}, "past_blocks.data"),
    ("past-scalar", {"past_blocks": _floats()}, "past_blocks.shape"),
    ("past-empty-rank-1", {**ONE, "past_blocks": _floats(0)}, "past_blocks.shape"),
    ("past-empty-rank-3", {**ONE, "past_blocks": _floats(0, 2, 3)}, "past_blocks.shape"),
    (
        "past-empty-int",
        {**ONE, "past_blocks": wire.tensor(np.zeros((0, 10), "i4"))},
        "past_blocks.dtype",
    ),
    (
        "past-empty-bool",
        {**ONE, "past_blocks": wire.tensor(np.zeros((0, 10), "?"))},
        "past_blocks.dtype",
    ),
    ("reduction", {"cost_reduction": 9}, "cost_reduction"),
    ("tolerance-negative", {"endpoint_tolerance": -1.0}, "endpoint_tolerance"),
    ("tolerance-nan", {"endpoint_tolerance": float("nan")}, "endpoint_tolerance"),
    ("tolerance-inf", {"endpoint_tolerance": float("inf")}, "endpoint_tolerance"),
]

SELECTIONS: Table = [
    ("weights-sum", {"weights": [0.5] * 4}, "weights"),
    ("weights-nan", {"weights": [float("nan")] * 4}, "weights"),
]

POOLS: Table = [
    ("pool-missing", {"candidates": None}, "candidates.dtype"),
    ("pool-rank", {"candidates": _floats(6, wire.WIDTH)}, "candidates.shape"),
    ("pool-empty", {"candidates": _floats(0, 4, wire.WIDTH)}, "candidates.shape"),
    ("pool-horizon-0", {"candidates": _floats(6, 0, wire.WIDTH)}, "candidates.shape"),
    ("pool-width", {"candidates": _floats(6, 4, 9)}, "candidates.shape"),
    ("pool-horizon", {"candidates": _floats(1, 1025, wire.WIDTH)}, "candidates.shape"),
    ("pool-nan", {"candidates": _floats(6, 4, wire.WIDTH, value=np.nan)}, "candidates.data"),
    ("pool-integer", {"candidates": wire.tensor(np.zeros((6, 4, 10), "i4"))}, "candidates.dtype"),
    ("elites-all", {"elite_count": 6}, "elite_count"),
    ("elites-absurd", {"elite_count": 2**32 - 1}, "elite_count"),
    ("pool-weights", {"weights": [1.0]}, "weights"),
]


def _budget(**changed: int) -> dict[str, Any]:
    budget = {"candidates": 8, "elites": 2, "iterations": 2, "horizon": 3, **changed}
    return {"budget": budget}


BUDGETS: Table = [
    ("budget-elites", _budget(elites=9), "budget.elites"),
    ("budget-candidates", _budget(candidates=2**32 - 1), "budget.candidates"),
    ("budget-iterations", _budget(iterations=2**32 - 1), "budget.iterations"),
    ("budget-horizon", _budget(horizon=2**32 - 1), "budget.horizon"),
    ("returns", {"returns": 9}, "returns"),
]

# What ComparePair refuses of history, views, checkpoint and mode, the planner's methods refuse too.
SHARED = ("history", "perturbations", "explicit_views", "checkpoint", "numeric_mode", "request_id")


def _shared() -> list[tuple[str, dict[str, Any], str, str]]:
    rows = []
    for case in BAD_PAIRS:
        head = case.field.replace("[", ".").partition(".")[0]
        if head not in SHARED and case.code == INVALID:
            continue
        pair = case.request
        views = pair.WhichOneof("perturbation")
        given = {
            "checkpoint": pair.checkpoint,
            "history": pair.history,
            views or "perturbations": getattr(pair, views) if views else None,
            "numeric_mode": pair.numeric_mode,
            "request_id": pair.request_id,
        }
        # Views as real numbers are ComparePair's alone.
        field = "explicit_views.dtype" if case.id.startswith("views-float") else case.field
        rows.append((case.id, given, case.code, field))
    return rows


def _all(build: Callable[..., object], *tables: Table) -> list[Case]:
    own = [
        Case(label, build(**changed), INVALID, field)
        for table in tables
        for label, changed, field in table
    ]
    shared = [Case(label, build(**given), code, field) for label, given, code, field in _shared()]
    return own + shared


BAD_POOLS = _all(pool, MOMENTS, SELECTIONS, POOLS)
BAD_STARTS = _all(start, MOMENTS, SELECTIONS[:3])
BAD_PAIRED = _all(paired, MOMENTS, BUDGETS)

GOOD_POOL = pb.PlanRequest(pool=pb.PlanPool(iteration=1, candidates=POOL))


def _proposal(**changed: object) -> pb.PlanRequest:
    given = {"mean": MEAN, "std": STD, "candidates": 5, **changed}
    kept = {name: value for name, value in given.items() if value is not None}
    return pb.PlanRequest(pool={"proposal": kept})


GOOD_PROPOSAL = _proposal()
# Messages after a good start.
BAD_NEXT = [
    Case("nothing", pb.PlanRequest(), field="pool"),
    Case("a-second-start", start(), field="pool"),
    Case("pool-without-pool", pb.PlanRequest(pool={}), field="pool.candidates"),
    *(
        Case(label, pb.PlanRequest(pool=changed), field=f"pool.{field}")
        for label, changed, field in POOLS
        if changed.get("candidates") is not None
    ),
    Case("no-mean", _proposal(mean=None), field="pool.proposal.mean.dtype"),
    Case("mean-width", _proposal(mean=_floats(4, 9)), field="pool.proposal.mean.shape"),
    Case("mean-nan", _proposal(mean=_floats(4, 10, value=np.nan)), field="pool.proposal.mean.data"),
    Case("std-shape", _proposal(std=_floats(3, 10)), field="pool.proposal.std.shape"),
    Case("std-negative", _proposal(std=_floats(4, 10, value=-1)), field="pool.proposal.std.data"),
    Case("std-over", _proposal(std=_floats(4, 10, value=3e38)), field="pool.proposal.std.data"),
    Case("no-candidates", _proposal(candidates=0), field="pool.proposal.candidates"),
    Case("candidates", _proposal(candidates=2**32 - 1), field="pool.proposal.candidates"),
]
