"""Planners' requests that can never work, with the status and the field each must name."""

from __future__ import annotations

from typing import Any

import given_wire
import numpy as np
import planning_wire as planning
import wire
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1.tensor_pb2 import DTYPE_FLOAT32, Tensor
from bad_pairs import BAD_PAIRS, INVALID, Case, Rows, cases
from google.protobuf.duration_pb2 import Duration

NAN, INF = float("nan"), float("inf")
# Numbers that no weight may be.
WRONG = [-1.0, NAN, INF, 1e308, 1.1e30, 9e-31, 5e-324]
ABSENT = "NOT_FOUND"
TERM = "objective.terms[1]"
BLUR = "gaussian_blur.kernel_size"


def _poked(array: np.ndarray, value: float) -> Tensor:
    array = array.copy()
    array.flat[-1] = value
    return wire.tensor(array)


def _term(**fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"objective": {"terms": [{}, fields]}}


def _weights() -> Rows:
    """Every weight of an objective that no number may be."""
    found: Rows = []
    for value in WRONG:
        place = "[1]" if np.isfinite(value) else ""
        wrong = {
            f"{TERM}.step_weights{place}": _term(step_weights=[1.0, value, 1.0]),
            f"{TERM}.coordinate_weights{place}": _term(coordinate_weights=[1.0, value] * 8),
            f"objective.control_weights{place}": {"objective": {"control_weights": [1, value] * 5}},
            f"{TERM}.weight": _term(weight=value),
        }
        found += [(f"{field}={value}", fields, field) for field, fields in wrong.items()]
    return found


# Fields that all three requests share.
MOMENTS: Rows = [
    ("nameless", {"checkpoint": None}, "checkpoint.name"),
    ("unknown", {"checkpoint": wire.checkpoint("nobody")}, "", ABSENT),
    ("digest", {"checkpoint": wire.checkpoint(digest="0" * 64)}, "", "FAILED_PRECONDITION"),
    ("no-history", {"history": None}, "history.dtype"),
    ("history-4", {"history": wire.tensor(wire.frames(4))}, "history.shape"),
    ("history-rank", {"history": wire.tensor(wire.frames(1)[0])}, "history.shape"),
    ("no-past", {"past_blocks": None}, "past_blocks.shape"),
    ("past-many", {"past_blocks": wire.tensor(wire.blocks(3))}, "past_blocks.shape"),
    ("past-1", {"past_blocks": wire.tensor(wire.blocks(1))}, "past_blocks.shape"),
    ("past-width", {"past_blocks": wire.tensor(wire.blocks(2, width=9))}, "past_blocks.shape"),
    ("past-rank", {"past_blocks": wire.tensor(wire.blocks(2)[None])}, "past_blocks.shape"),
    ("past-int", {"past_blocks": wire.tensor(np.zeros((2, 10), np.int64))}, "past_blocks.dtype"),
    ("past-nan", {"past_blocks": _poked(wire.blocks(2), NAN)}, "past_blocks.data"),
    (
        "past-huge",
        {"past_blocks": Tensor(dtype=DTYPE_FLOAT32, shape=[2**40, 2**40])},
        "past_blocks.shape",
    ),
    ("no-goal", {"goal": None}, "goal"),
    ("goal-empty", {"goal": pb.Goal()}, "goal"),
    ("goal-frames", {"goal": pb.Goal(frame=wire.tensor(wire.frames(1)))}, "goal.frame.shape"),
    (
        "goal-size",
        {"goal": pb.Goal(frame=wire.tensor(wire.frames(1, height=30)[0]))},
        "goal.frame.shape",
    ),
    ("goal-float", {"goal": pb.Goal(frame=wire.tensor(np.zeros((28, 28, 3))))}, "goal.frame.dtype"),
    ("goal-width", {"goal": pb.Goal(latent=wire.tensor(np.zeros(15)))}, "goal.latent.shape"),
    ("goal-rank", {"goal": pb.Goal(latent=wire.tensor(np.zeros((1, 16))))}, "goal.latent.shape"),
    ("goal-inf", {"goal": pb.Goal(latent=_poked(np.zeros(16), INF))}, "goal.latent.data"),
    (
        "goal-int",
        {"goal": pb.Goal(latent=wire.tensor(np.zeros(16, np.int32)))},
        "goal.latent.dtype",
    ),
    ("no-views", {"perturbations": None}, "perturbations"),
    ("no-specs", {"perturbations": pb.CertifyPoolRequest().perturbations}, "perturbations.specs"),
    ("blur", {"perturbations": wire.several(wire.blur(61))}, f"perturbations.specs[0].{BLUR}"),
    ("draws", {"perturbations": wire.several(draws=4000)}, "perturbations.draws"),
    ("view-shape", {"explicit_views": wire.tensor(wire.frames(2))}, "explicit_views.shape"),
    (
        "view-size",
        {"explicit_views": wire.tensor(wire.frames(3, width=30)[None])},
        "explicit_views.shape",
    ),
    ("reduction", {"cost_reduction": 7}, "cost_reduction"),
    ("mode", {"numeric_mode": 9}, "numeric_mode"),
    ("mode-tf32", {"numeric_mode": 2}, "numeric_mode"),
    (
        "view-given",
        {"perturbations": wire.several(wire.noise(), given_wire.given())},
        "perturbations.specs[1].given_views",
    ),
    ("view-real", given_wire.real_views(), "explicit_views.dtype"),
    ("proprio-of-none", {"proprio": wire.tensor(given_wire.floats(3, 4))}, "proprio"),
    ("goal-proprio-of-none", {"goal_proprio": wire.tensor(given_wire.floats(4))}, "goal_proprio"),
    *_weights(),
    ("term-weight-0", _term(weight=0.0), f"{TERM}.weight"),
    ("term-norm", _term(norm=9), f"{TERM}.norm"),
    ("terms", {"objective": {"terms": [{}] * 17}}, "objective.terms"),
    ("steps-0", _term(step_weights=[0.0] * 3), f"{TERM}.step_weights"),
    ("steps-many", _term(step_weights=[1.0] * 1025), f"{TERM}.step_weights"),
    ("coordinates-0", _term(coordinate_weights=[0.0] * 16), f"{TERM}.coordinate_weights"),
    ("coordinates-15", _term(coordinate_weights=[1.0] * 15), f"{TERM}.coordinate_weights"),
    (
        "coordinates-many",
        _term(coordinate_weights=[1.0] * (2**18 + 1)),
        f"{TERM}.coordinate_weights",
    ),
    ("controls-0", {"objective": {"control_weights": [0.0]}}, "objective.control_weights"),
    ("controls-2", {"objective": {"control_weights": [1.0] * 2}}, "objective.control_weights"),
    (
        "controls-many",
        {"objective": {"control_weights": [1.0] * 65537}},
        "objective.control_weights",
    ),
]
SELECTIONS: Rows = [
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
SAID: Rows = [
    ("offsets-nan", {"offsets": _poked(given_wire.floats(12), NAN)}, "offsets.data"),
    ("offsets-inf", {"offsets": _poked(given_wire.floats(12), -INF)}, "offsets.data"),
    ("offsets-huge", {"offsets": _poked(np.zeros(12), 1e308)}, "offsets.data"),
    ("offsets-few", {"offsets": wire.tensor(given_wire.floats(11))}, "offsets.shape"),
    ("offsets-none", {"offsets": wire.tensor(given_wire.floats(0))}, "offsets.shape"),
    ("offsets-rank", {"offsets": wire.tensor(given_wire.floats(12, 1))}, "offsets.shape"),
    ("offsets-int", {"offsets": wire.tensor(np.zeros(12, np.int32))}, "offsets.dtype"),
    (
        "offsets-short",
        {"offsets": Tensor(dtype=DTYPE_FLOAT32, shape=[12], data=b"x")},
        "offsets.data",
    ),
    ("infeasible-all", {"infeasible": range(12)}, "infeasible"),
    ("infeasible-beyond", {"infeasible": [12]}, "infeasible"),
    ("infeasible-huge", {"infeasible": [2**32 - 1]}, "infeasible"),
    ("infeasible-many", {"infeasible": [0] * (2**20 + 1)}, "infeasible"),
]
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


ONE = wire.tensor(wire.frames(1))
for name, empty, field in (
    ("rank-1", np.zeros(0, np.float32), "shape"),
    ("rank-3", np.zeros((0, 2, 3), np.float32), "shape"),
    ("int", np.zeros((0, 10), "i4"), "dtype"),
    ("bool", np.zeros((0, 10), "?"), "dtype"),
):  # of one frame, which has no past
    changed = {"history": ONE, "past_blocks": wire.tensor(empty)}
    MOMENTS.append((f"past-empty-{name}", changed, f"past_blocks.{field}"))
# What ComparePair refuses of these, the planner's methods refuse too.
SHARED = ("history", "perturbations", "explicit_views", "checkpoint", "numeric_mode", "request_id")


def _shared() -> Rows:
    rows: Rows = []
    for case in BAD_PAIRS:
        head = case.field.replace("[", ".").partition(".")[0]
        if head not in SHARED and case.code == INVALID:
            continue
        pair = case.request
        views = pair.WhichOneof("perturbation") or "perturbations"
        changed = {
            "checkpoint": pair.checkpoint,
            "history": pair.history,
            views: getattr(pair, views) if pair.HasField(views) else None,
            "numeric_mode": pair.numeric_mode,
            "request_id": pair.request_id,
            "goal": pb.Goal(latent=wire.tensor(np.zeros(16, np.float32))),  # of any frames' size
        }
        # Views as real numbers are ComparePair's alone.
        field = "explicit_views.dtype" if case.id.startswith("views-float") else case.field
        rows.append((f"pair-{case.id}", changed, field, case.code))
    return rows


MOMENTS += _shared()


def _unary() -> list[Case]:
    steps = _term(step_weights=[1.0] * (planning.HORIZON - 1))
    few: Rows = [("steps-few", steps, f"{TERM}.step_weights")]
    pools: Rows = [
        *SELECTIONS,
        *((f"pool-{name}", {"candidates": sent}, field) for name, sent, field in POOLS),
        *((f"said-{name}", changed, field) for name, changed, field in SAID),
        *((f"elites-{n}", {"elite_count": n}, "elite_count") for n in (12, 13, 2**32 - 1)),
        ("weights-2", {"weights": [0.5, 0.5]}, "weights"),
    ]
    budgets: Rows = [
        ("budget-all-elites", {"budget": {"candidates": 8, "elites": 8}}, "budget.elites"),
        ("budget-candidates", {"budget": {"candidates": 2**32 - 1}}, "budget.candidates"),
        ("returns", {"returns": 9}, "returns"),
    ]
    return [
        *cases([*MOMENTS, *few, *pools], planning.certify, "CertifyPool-"),
        *cases([*MOMENTS, *few, *budgets], planning.paired, "PlanPaired-"),
    ]


def _streams() -> list[Case]:
    start, good = planning.start(), planning.proposed()
    frame = pb.PlanRequest(frame=pb.PlanFrame(history=ONE, keep=99))
    found = [
        Case("none", [], "start"),
        Case("empty-first", [pb.PlanRequest()], "start"),
        Case("pool-first", [good], "start"),
        Case("start-twice", [start, start], "pool"),
        Case("empty-later", [start, good, pb.PlanRequest()], "pool"),
        Case("frame-first", [frame], "start"),
        Case("empty-frame", [start, pb.PlanRequest(frame={})], "frame.history.dtype"),
        Case("frame-keeps-more", [start, frame], "frame.keep"),
        Case("no-pool", [start, pb.PlanRequest(pool={})], "pool.candidates"),
    ]

    def starts(**changed: object) -> list[pb.PlanRequest]:
        return [planning.start(**changed)]

    def later(**changed: object) -> list[pb.PlanRequest]:
        return [start, good, pb.PlanRequest(pool=changed)]

    def late(**changed: object) -> list[pb.PlanRequest]:
        return [planning.start(**changed), good]

    def proposals(**changed: object) -> list[pb.PlanRequest]:
        return [start, planning.proposed(**changed)]

    given = wire.tensor(planning.pool())
    pools = [(name, {"candidates": sent}, field) for name, sent, field in POOLS]
    said = [(name, {"candidates": given, **changed}, field) for name, changed, field in SAID]
    of_proposals = [
        (field, {"proposal": good.pool.proposal, field: value}, field)
        for field, value in given_wire.said().items()
    ]
    steps = f"{TERM}.step_weights"
    seen_late: Rows = [
        ("elites", {"elite_count": 12}, "elite_count"),
        ("weights", {"weights": [0.5, 0.5]}, "weights"),
        ("steps", _term(step_weights=[1.0, 2.0]), steps),
    ]
    shape = (planning.HORIZON, wire.WIDTH)
    wrong: Rows = [
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
    ]
    return [
        *found,
        *cases([*MOMENTS, *SELECTIONS], starts, "start-", "start."),
        *cases(pools, later, "pool-", "pool."),
        *cases(said, later, "said-", "pool."),
        *cases(of_proposals, later, "proposal-", "pool."),
        *cases(seen_late, late, "late-", "start."),
        *cases(wrong, proposals, "proposal-", "pool.proposal."),
        Case("proposal-few", proposals(candidates=3), "start.elite_count"),
    ]


BAD_POOLS, BAD_STREAMS = _unary(), _streams()
