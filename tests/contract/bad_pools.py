"""Planners' requests that can never work, with the status and the field each must name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import given_wire
import numpy as np
import planning_wire as planning
import wire
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1.tensor_pb2 import DTYPE_FLOAT32, Tensor
from bad_pairs import INVALID
from google.protobuf.duration_pb2 import Duration

NAN, INF = float("nan"), float("inf")
# Numbers that no weight may be.
WRONG = [-1.0, NAN, INF, 1e308, 1.1e30, 9e-31, 5e-324]
ABSENT = "NOT_FOUND"


class PoolCase(NamedTuple):
    """A unary request or the messages of a stream, the status, and the field it must name."""

    id: str
    request: Any
    code: str = INVALID
    field: str = ""


def _poked(array: np.ndarray, value: float) -> Tensor:
    array = array.copy()
    array.flat[-1] = value
    return wire.tensor(array)


def _term(**fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"objective": {"terms": [{}, fields]}}


def _weights() -> list[tuple[str, dict[str, Any], str, str]]:
    """Every weight of an objective that no number may be."""
    term, found = "objective.terms[1]", []
    for value in WRONG:
        place = "[1]" if np.isfinite(value) else ""
        wrong = {
            f"{term}.step_weights{place}": _term(step_weights=[1.0, value, 1.0]),
            f"{term}.coordinate_weights{place}": _term(coordinate_weights=[1.0, value] * 8),
            f"objective.control_weights{place}": {"objective": {"control_weights": [1, value] * 5}},
            f"{term}.weight": _term(weight=value),
        }
        found += [(f"{field}={value}", fields, INVALID, field) for field, fields in wrong.items()]
    return found


# Fields that all three requests share.
MOMENTS: list[tuple[str, dict[str, Any], str, str]] = [
    ("nameless", {"checkpoint": None}, INVALID, "checkpoint.name"),
    ("unknown", {"checkpoint": wire.checkpoint("nobody")}, ABSENT, ""),
    ("digest", {"checkpoint": wire.checkpoint(digest="0" * 64)}, "FAILED_PRECONDITION", ""),
    ("no-history", {"history": None}, INVALID, "history.dtype"),
    ("history-4", {"history": wire.tensor(wire.frames(4))}, INVALID, "history.shape"),
    ("history-rank", {"history": wire.tensor(wire.frames(1)[0])}, INVALID, "history.shape"),
    ("no-past", {"past_blocks": None}, INVALID, "past_blocks.shape"),
    ("past-many", {"past_blocks": wire.tensor(wire.blocks(3))}, INVALID, "past_blocks.shape"),
    ("past-1", {"past_blocks": wire.tensor(wire.blocks(1))}, INVALID, "past_blocks.shape"),
    ("past-width", {"past_blocks": wire.tensor(wire.blocks(2, width=9))}, INVALID,
     "past_blocks.shape"),
    ("past-rank", {"past_blocks": wire.tensor(wire.blocks(2)[None])}, INVALID,
     "past_blocks.shape"),
    ("past-int", {"past_blocks": wire.tensor(np.zeros((2, 10), np.int64))}, INVALID,
     "past_blocks.dtype"),
    ("past-nan", {"past_blocks": _poked(wire.blocks(2), NAN)}, INVALID, "past_blocks.data"),
    ("past-huge", {"past_blocks": Tensor(dtype=DTYPE_FLOAT32, shape=[2**40, 2**40])}, INVALID,
     "past_blocks.shape"),
    ("no-goal", {"goal": None}, INVALID, "goal"),
    ("goal-empty", {"goal": pb.Goal()}, INVALID, "goal"),
    ("goal-frames", {"goal": pb.Goal(frame=wire.tensor(wire.frames(1)))}, INVALID,
     "goal.frame.shape"),
    ("goal-size", {"goal": pb.Goal(frame=wire.tensor(wire.frames(1, height=30)[0]))}, INVALID,
     "goal.frame.shape"),
    ("goal-float", {"goal": pb.Goal(frame=wire.tensor(np.zeros((28, 28, 3))))}, INVALID,
     "goal.frame.dtype"),
    ("goal-width", {"goal": pb.Goal(latent=wire.tensor(np.zeros(15)))}, INVALID,
     "goal.latent.shape"),
    ("goal-rank", {"goal": pb.Goal(latent=wire.tensor(np.zeros((1, 16))))}, INVALID,
     "goal.latent.shape"),
    ("goal-inf", {"goal": pb.Goal(latent=_poked(np.zeros(16), INF))}, INVALID,
     "goal.latent.data"),
    ("goal-int", {"goal": pb.Goal(latent=wire.tensor(np.zeros(16, np.int32)))}, INVALID,
     "goal.latent.dtype"),
    ("no-views", {"perturbations": None}, INVALID, "perturbations"),
    ("no-specs", {"perturbations": pb.CertifyPoolRequest().perturbations}, INVALID,
     "perturbations.specs"),
    ("blur", {"perturbations": wire.several(wire.blur(61))}, INVALID,
     "perturbations.specs[0].gaussian_blur.kernel_size"),
    ("draws", {"perturbations": wire.several(draws=4000)}, INVALID, "perturbations.draws"),
    ("view-shape", {"explicit_views": wire.tensor(wire.frames(2))}, INVALID,
     "explicit_views.shape"),
    ("view-size", {"explicit_views": wire.tensor(wire.frames(3, width=30)[None])}, INVALID,
     "explicit_views.shape"),
    ("reduction", {"cost_reduction": 7}, INVALID, "cost_reduction"),
    ("mode", {"numeric_mode": 9}, INVALID, "numeric_mode"),
    ("mode-tf32", {"numeric_mode": 2}, INVALID, "numeric_mode"),
    ("view-given", {"perturbations": wire.several(wire.noise(), given_wire.given())}, INVALID,
     "perturbations.specs[1].given_views"),
    ("view-real", given_wire.real_views(), INVALID, "explicit_views.dtype"),
    ("proprio-of-none", {"proprio": wire.tensor(given_wire.floats(3, 4))}, INVALID, "proprio"),
    ("goal-proprio-of-none", {"goal_proprio": wire.tensor(given_wire.floats(4))}, INVALID,
     "goal_proprio"),
    *_weights(),
    ("term-weight-0", _term(weight=0.0), INVALID, "objective.terms[1].weight"),
    ("term-norm", _term(norm=9), INVALID, "objective.terms[1].norm"),
    ("terms", {"objective": {"terms": [{}] * 17}}, INVALID, "objective.terms"),
    ("steps-0", _term(step_weights=[0.0] * 3), INVALID, "objective.terms[1].step_weights"),
    ("steps-many", _term(step_weights=[1.0] * 1025), INVALID, "objective.terms[1].step_weights"),
    ("coordinates-0", _term(coordinate_weights=[0.0] * 16), INVALID,
     "objective.terms[1].coordinate_weights"),
    ("coordinates-15", _term(coordinate_weights=[1.0] * 15), INVALID,
     "objective.terms[1].coordinate_weights"),
    ("coordinates-many", _term(coordinate_weights=[1.0] * (2**18 + 1)), INVALID,
     "objective.terms[1].coordinate_weights"),
    ("controls-0", {"objective": {"control_weights": [0.0]}}, INVALID, "objective.control_weights"),
    ("controls-2", {"objective": {"control_weights": [1.0] * 2}}, INVALID,
     "objective.control_weights"),
    ("controls-many", {"objective": {"control_weights": [1.0] * 65537}}, INVALID,
     "objective.control_weights"),
]  # fmt: skip
SELECTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("weights-sum", {"weights": [0.5, 0.5, 0.5]}, "weights"),
    ("kept-over", {"kept_elites": planning.ELITES + 1}, "kept_elites"),
    ("kept-huge", {"kept_elites": 2**32 - 1}, "kept_elites"),
    ("kept-of-none", {"kept_elites": 1, "elite_count": 0}, "kept_elites"),
    *(
        (f"goal-{name}", {"coverage_goal": pb.CoverageGoal(**goal)}, f"coverage_goal.{field}")
        for name, field, goal in [
            ("draws-few", "max_draws", {"max_draws": 148}),
            ("draws-few-each", "max_draws", {"max_draws": 182, "pools": 2}),
            ("draws-many", "max_draws", {"max_draws": 2049}),  # of two specs
            ("time-0", "time_limit", {"time_limit": Duration()}),
            ("time-negative", "time_limit", {"time_limit": Duration(seconds=-1)}),
            ("time-long", "time_limit", {"time_limit": Duration(seconds=301)}),
        ]
    ),
    (
        "goal-views",
        {"coverage_goal": pb.CoverageGoal(), "explicit_views": wire.tensor(wire.frames(3)[None])},
        "coverage_goal",
    ),
]
# What is said of single candidates, of a pool that is good.
SAID: list[tuple[str, dict[str, Any], str]] = [
    ("offsets-nan", {"offsets": _poked(given_wire.floats(12), NAN)}, "offsets.data"),
    ("offsets-inf", {"offsets": _poked(given_wire.floats(12), -INF)}, "offsets.data"),
    ("offsets-huge", {"offsets": _poked(np.zeros(12), 1e308)}, "offsets.data"),
    ("offsets-few", {"offsets": wire.tensor(given_wire.floats(11))}, "offsets.shape"),
    ("offsets-none", {"offsets": wire.tensor(given_wire.floats(0))}, "offsets.shape"),
    ("offsets-rank", {"offsets": wire.tensor(given_wire.floats(12, 1))}, "offsets.shape"),
    ("offsets-int", {"offsets": wire.tensor(np.zeros(12, np.int32))}, "offsets.dtype"),
    ("offsets-short", {"offsets": Tensor(dtype=DTYPE_FLOAT32, shape=[12], data=b"x")},
     "offsets.data"),
    ("infeasible-all", {"infeasible": range(12)}, "infeasible"),
    ("infeasible-beyond", {"infeasible": [12]}, "infeasible"),
    ("infeasible-huge", {"infeasible": [2**32 - 1]}, "infeasible"),
    ("infeasible-many", {"infeasible": [0] * (2**20 + 1)}, "infeasible"),
]  # fmt: skip
POOLS: list[tuple[str, Tensor | None, str]] = [
    ("missing", Tensor(), "candidates.dtype"),
    ("rank", wire.tensor(planning.pool()[0]), "candidates.shape"),
    ("width", wire.tensor(planning.pool()[:, :, 1:]), "candidates.shape"),
    ("none", wire.tensor(planning.pool(0)), "candidates.shape"),
    ("no-steps", wire.tensor(planning.pool(horizon=0)), "candidates.shape"),
    ("steps", wire.tensor(planning.pool(4, horizon=1025)), "candidates.shape"),
    ("nan", _poked(planning.pool(), NAN), "candidates.data"),
    ("huge-number", _poked(planning.pool().astype(np.float64), 1e300), "candidates.data"),
    ("int", wire.tensor(planning.pool().astype(np.int32)), "candidates.dtype"),
    ("many", wire.tensor(np.zeros((300_000, 1, 10), np.float32)), "candidates.shape"),
    ("work", wire.tensor(np.zeros((9_000, 50, 10), np.float32)), "candidates.shape"),
]


def _unary() -> list[PoolCase]:
    makers: dict[str, Callable[..., Any]] = {
        "CertifyPool": planning.certify,
        "PlanPaired": planning.paired,
    }
    cases = [
        PoolCase(f"{method}-{name}", make(**changed), code, field)
        for method, make in makers.items()
        for name, changed, code, field in MOMENTS
    ]
    for name, changed, field in SELECTIONS:
        cases.append(PoolCase(f"CertifyPool-{name}", planning.certify(**changed), INVALID, field))
    for name, candidates, field in POOLS:
        request = planning.certify(candidates=candidates)
        cases.append(PoolCase(f"CertifyPool-pool-{name}", request, INVALID, field))
    for name, changed, field in SAID:
        request = planning.certify(**changed)
        cases.append(PoolCase(f"CertifyPool-said-{name}", request, INVALID, field))
    steps = _term(step_weights=[1.0] * (planning.HORIZON - 1))
    path = "objective.terms[1].step_weights"
    cases += [
        PoolCase("CertifyPool-steps-few", planning.certify(**steps), INVALID, path),
        PoolCase("PlanPaired-steps-few", planning.paired(**steps), INVALID, path),
    ]
    for count in (12, 13, 2**32 - 1):
        request = planning.certify(elite_count=count)
        cases.append(PoolCase(f"CertifyPool-elites-{count}", request, INVALID, "elite_count"))
    request = planning.certify(weights=[0.5, 0.5])
    cases.append(PoolCase("CertifyPool-weights-2", request, INVALID, "weights"))
    for name, fields, field in (
        ("all-elites", {"candidates": 8, "elites": 8}, "elites"),
        ("candidates", {"candidates": 2**32 - 1}, "candidates"),
    ):
        request = planning.paired(budget=pb.CemBudget(**fields))
        cases.append(PoolCase(f"PlanPaired-budget-{name}", request, INVALID, f"budget.{field}"))
    returns = PoolCase("PlanPaired-returns", planning.paired(returns=9), INVALID, "returns")
    return [*cases, returns]


def _streams() -> list[PoolCase]:
    start, good = planning.start(), planning.proposed()
    frame = pb.PlanRequest(frame=pb.PlanFrame(history=wire.tensor(wire.frames(1)), keep=99))
    cases = [
        PoolCase("none", [], INVALID, "start"),
        PoolCase("empty-first", [pb.PlanRequest()], INVALID, "start"),
        PoolCase("pool-first", [good], INVALID, "start"),
        PoolCase("start-twice", [start, start], INVALID, "pool"),
        PoolCase("empty-later", [start, good, pb.PlanRequest()], INVALID, "pool"),
        PoolCase("frame-first", [frame], INVALID, "start"),
        PoolCase("empty-frame", [start, pb.PlanRequest(frame=pb.PlanFrame())], INVALID,
                 "frame.history.dtype"),
        PoolCase("frame-keeps-more", [start, frame], INVALID, "frame.keep"),
        PoolCase("no-pool", [start, pb.PlanRequest(pool=pb.PlanPool())], INVALID,
                 "pool.candidates"),
    ]  # fmt: skip
    for name, changed, code, field in MOMENTS:
        request = planning.start(**changed)
        cases.append(PoolCase(f"start-{name}", [request], code, field and f"start.{field}"))
    for name, changed, field in SELECTIONS:
        cases.append(
            PoolCase(f"start-{name}", [planning.start(**changed)], INVALID, f"start.{field}")
        )
    for name, candidates, field in POOLS:
        pool = pb.PlanRequest(pool=pb.PlanPool(candidates=candidates))
        cases.append(PoolCase(f"pool-{name}", [start, good, pool], INVALID, f"pool.{field}"))
    candidates = wire.tensor(planning.pool())
    for name, changed, field in SAID:
        pool = pb.PlanRequest(pool=pb.PlanPool(candidates=candidates, **changed))
        cases.append(PoolCase(f"said-{name}", [start, good, pool], INVALID, f"pool.{field}"))
    proposal = planning.proposed().pool.proposal
    for field, value in given_wire.said().items():
        pool = pb.PlanRequest(pool=pb.PlanPool(proposal=proposal, **{field: value}))
        cases.append(PoolCase(f"proposal-{field}", [start, pool], INVALID, f"pool.{field}"))
    late: dict[str, dict[str, Any]] = {
        "elite_count": {"elite_count": 12},
        "weights": {"weights": [0.5, 0.5]},
        "objective.terms[1].step_weights": _term(step_weights=[1.0, 2.0]),
    }
    for field, changed in late.items():
        messages = [planning.start(**changed), good]
        cases.append(PoolCase(f"late-{field}", messages, INVALID, f"start.{field}"))
    shape = (planning.HORIZON, wire.WIDTH)
    proposals: list[tuple[str, dict[str, Any], str]] = [
        ("no-mean", {"mean": None}, "mean.dtype"),
        ("no-std", {"std": None}, "std.dtype"),
        ("mean-width", {"mean": wire.tensor(np.zeros((3, 9), np.float32))}, "mean.shape"),
        ("mean-rank", {"mean": wire.tensor(np.zeros((1, *shape), np.float32))}, "mean.shape"),
        ("mean-nan", {"mean": _poked(np.zeros(shape), NAN)}, "mean.data"),
        ("std-shape", {"std": wire.tensor(np.ones((2, 10), np.float32))}, "std.shape"),
        ("std-negative", {"std": _poked(np.ones(shape), -1e-9)}, "std.data"),
        ("std-overflow", {"std": wire.tensor(np.full(shape, 3e38, np.float32))}, "std.data"),
        ("none", {"candidates": 0}, "candidates"),
        ("billions", {"candidates": 2**32 - 1}, "candidates"),
        ("few", {"candidates": 3}, ""),
    ]
    for name, changed, field in proposals:
        path = f"pool.proposal.{field}" if field else "start.elite_count"
        cases.append(
            PoolCase(f"proposal-{name}", [start, planning.proposed(**changed)], INVALID, path)
        )
    return cases


BAD_POOLS, BAD_STREAMS = _unary(), _streams()
