"""What no declaration states of a request: rows for each message, tried wherever one occurs."""

from typing import Any

import given_wire
import numpy as np
import planning_wire as planning
import wire
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1.tensor_pb2 import Tensor
from declared import INF, NAN, Rows, Rules

HUGE = 2**32 - 1
LONG, UNICODE = "x" * 20_000, "\u1234"
LATE, ABSENT, OUTSIDE = "FAILED_PRECONDITION", "NOT_FOUND", "PERMISSION_DENIED"
ELSEWHERE = {"dataset": None}
FRAMES = wire.frames(6).reshape(2, 3, 28, 28, 3)
ONE = wire.tensor(wire.frames(1))
WIDTH = given_wire.PROPRIO
ABOVE = float(np.nextafter(np.float32(1), np.float32(2)))


def floats(*shape: int, value: float = 0.0, at_end: float | None = None) -> Any:
    """A float32 tensor of one value, the last of which may be another."""
    array = np.full(shape, value, np.float32)
    if at_end is not None:
        array.flat[-1] = at_end
    return wire.tensor(array)


def _views(field: str, array: np.ndarray) -> dict[str, Any]:
    return {field: wire.tensor(array)}


def _weights(field: str, count: int) -> Rows:
    """Weights are 0, or from 1e-30 to 1e30, and not all of them 0."""
    values = (-1.0, 1e308, 1.1e30, 9e-31, 5e-324)
    wrong: Rows = [
        (f"{field}[1]={value}", {field: [1, value] * count}, f"{field}[1]") for value in values
    ]
    return [*wrong, (f"{field}-0", {field: [0.0] * 2 * count}, field)]


def _empty_pasts() -> Rows:
    """One frame has no past, and an empty one has the right form."""
    arrays = {
        "rank-1": (np.zeros(0, np.float32), "shape"),
        "rank-3": (np.zeros((0, 2, 3), np.float32), "shape"),
        "int": (np.zeros((0, 10), "i4"), "dtype"),
        "bool": (np.zeros((0, 10), "?"), "dtype"),
    }
    return [
        (f"past-{name}", {"history": ONE, "past_blocks": wire.tensor(x)}, f"past_blocks.{part}")
        for name, (x, part) in arrays.items()
    ]


MOVED_GOAL = wire.several(wire.noise(), apply_to=2)
ABSURD = Tensor(dtype=1, shape=[2**60] * 100_000, data=b"x")
UNSEEN = {"observed_future": None, "goal": {"latent": floats(16)}}
EVERY: Rows = [("tf32", {"numeric_mode": 2}, "numeric_mode")]
SEEN: Rows = [
    *EVERY,
    ("history-long", {"history": wire.tensor(wire.frames(4))}, "history.shape"),
    ("history-absurd", {"history": ABSURD}, "history.shape"),
    *(
        (label, {**UNSEEN, **_views("history", np.zeros(shape, np.uint8))}, "history.shape")
        for label, shape in (("thin", (3, 10_000, 1, 3)), ("flat", (3, 1, 9, 3)))
    ),
    ("no-views", {"perturbations": None}, "perturbations"),
    ("views-count", _views("explicit_views", FRAMES[:, :2]), "explicit_views.shape"),
    ("views-size", _views("explicit_views", FRAMES[:, :, :27]), "explicit_views.shape"),
    ("views-none", _views("explicit_views", FRAMES[:0]), "explicit_views.shape"),
    ("views-rank", _views("explicit_views", FRAMES[0]), "explicit_views.shape"),
    ("views-int", _views("explicit_views", FRAMES.astype(np.int32)), "explicit_views.dtype"),
    ("views-wide", _views("explicit_views", np.zeros(FRAMES.shape)), "explicit_views.dtype"),
    ("views-half", _views("explicit_views", FRAMES.astype(np.float16)), "explicit_views.dtype"),
    ("proprio-of-none", {"proprio": floats(3, 4)}, "proprio"),
]
PAIRS: Rows = [
    *SEEN,
    ("apply-to-goal", {"perturbations": MOVED_GOAL}, "perturbations.apply_to"),
    *(
        (f"blocks-{n}x{w}", {"action_blocks": floats(n, w)}, "action_blocks.shape")
        for n, w in ((2, 10), (0, 10), (3 + 1024, 10), (6, 8), (6, 0))
    ),
    *(
        (f"view={value}", {"explicit_views": floats(*FRAMES.shape, value=value)},
         "explicit_views.data")
        for value in (ABOVE, -1e-45, -0.1, NAN, INF, 255)
    ),
    ("views-empty", {"explicit_views": floats(0, 3, 28, 28, 3)}, "explicit_views.shape"),
    ("future-size", _views("observed_future", np.zeros((4, 27, 28, 3), np.uint8)),
     "observed_future.shape"),
    ("future-length", {"observed_future": wire.tensor(wire.frames(3))}, "observed_future.shape"),
    (
        "future-over-frames",
        {
            "action_blocks": wire.tensor(wire.blocks(3 + 1020 - 1)),
            "observed_future": wire.tensor(np.zeros((1020, 28, 28, 3), np.uint8)),
            "perturbations": wire.several(draws=173),
        },
        "observed_future.shape",
    ),
    ("future-proprio-of-none", {"future_proprio": floats(4, 4)}, "future_proprio"),
    ("weights-short", {"weights": [0.5, 0.5]}, "weights"),
    ("weights-sum", {"weights": [0.3] * 4}, "weights"),
    ("weights-negative", {"weights": [2, -1, 0, 0]}, "weights"),
]  # fmt: skip
MOMENTS: Rows = [
    *SEEN,
    ("apply-to-latent", {"perturbations": MOVED_GOAL, "goal": {"latent": floats(16)}},
     "perturbations.apply_to"),
    *_empty_pasts(),
    ("view-real", given_wire.real_views(), "explicit_views.dtype"),
    ("view-shape", {"explicit_views": wire.tensor(wire.frames(2))}, "explicit_views.shape"),
    ("no-past", {"past_blocks": None}, "past_blocks.shape"),
    *(
        (f"past-{n}x{w}", {"past_blocks": floats(n, w)}, "past_blocks.shape")
        for n, w in ((3, 10), (1, 10), (2, 9))
    ),
    ("no-goal", {"goal": None}, "goal"),
    ("goal-empty", {"goal": pb.Goal()}, "goal"),
    ("goal-size", {"goal": {"frame": wire.tensor(wire.frames(1, height=30)[0])}},
     "goal.frame.shape"),
    ("goal-width", {"goal": {"latent": floats(15)}}, "goal.latent.shape"),
    ("goal-rank", {"goal": {"latent": floats(1, 16)}}, "goal.latent.shape"),
    ("goal-inf", {"goal": {"latent": floats(16, at_end=INF)}}, "goal.latent.data"),
    ("goal-int", {"goal": {"latent": wire.tensor(np.zeros(16, np.int32))}}, "goal.latent.dtype"),
    ("goal-proprio-of-none", {"goal_proprio": floats(4)}, "goal_proprio"),
    ("coordinates-15", {"objective": {"terms": [{"coordinate_weights": [1.0] * 15}]}},
     "objective.terms[0].coordinate_weights"),
    ("steps-few", {"objective": {"terms": [{"step_weights": [1.0] * 2}]}},
     "objective.terms[0].step_weights"),
    ("controls-2", {"objective": {"control_weights": [1.0] * 2}}, "objective.control_weights"),
]  # fmt: skip
SELECTIONS: Rows = [
    ("weights-sum", {"weights": [0.5, 0.5, 0.5]}, "weights"),
    ("weights-2", {"weights": [0.5, 0.5]}, "weights"),
    ("kept-over", {"kept_elites": planning.ELITES + 1}, "kept_elites"),
    ("kept-of-none", {"kept_elites": 1, "elite_count": 0}, "kept_elites"),
    *((f"elites-{n}", {"elite_count": n}, "elite_count") for n in (12, 13, HUGE)),
]
CANDIDATES: Rows = [
    *(
        (f"pool-{shape}", {"candidates": floats(*shape), "offsets": None}, "candidates.shape")
        for shape in (
            (12, 3, 9), (0, 3, 10), (12, 0, 10), (4, 1025, 10), (300_000, 1, 10), (9_000, 50, 10),
        )
    ),
    ("offsets-huge", {"offsets": wire.tensor(np.full(12, 1e308))}, "offsets.data"),
    ("offsets-few", {"offsets": floats(11)}, "offsets.shape"),
    ("offsets-none", {"offsets": floats(0)}, "offsets.shape"),
    ("infeasible-all", {"infeasible": range(12)}, "infeasible"),
    ("infeasible-beyond", {"infeasible": [12]}, "infeasible"),
]  # fmt: skip
SHIFTED: Rows = [("views-over", {"draws": 501, "shifts": [wire.noise()] * 2}, "draws")]
JOBS: Rows = [
    *EVERY,
    ("no-anchors", ELSEWHERE, "dataset"),
    ("set-unknown", {**ELSEWHERE, "anchor_set": "0" * 64}, "", ABSENT),
    ("set-no-digest", {**ELSEWHERE, "anchor_set": UNICODE}, "anchor_set"),
    ("set-up", {**ELSEWHERE, "anchor_set": "../" * 9}, "anchor_set"),
    *(
        (label, {"dataset": {"dataset": "tworoom.h5", "task": "tworoom", **fields}}, path, *code)
        for label, fields, path, *code in (
            ("count-1", {"count": 1}, "dataset.count"),
            ("frameskip-4", {"count": 4, "frameskip": 4}, "dataset.frameskip"),
            ("frameskip-max", {"count": 4, "frameskip": HUGE}, "dataset.frameskip"),
        )
    ),
]

RULES: Rules = {
    "CheckpointRef": [
        ("nameless", {"name": ""}, "name"),
        ("unknown", {"name": "nobody"}, "", ABSENT),
        ("up", {"name": ".."}, "name"),
        ("below", {"name": "../x"}, "name"),
        ("absolute", {"name": "/etc"}, "name"),
        ("unicode", {"name": UNICODE * 1000}, "name"),
        ("long", {"name": "a" * 2000}, "."),
        ("weights", {"weights": "../x.pt"}, "weights"),
        ("digest", {"digest": "0" * 64}, "", LATE),
        ("digest-unicode", {"digest": UNICODE * 1000}, "", LATE),
    ],
    "DatasetAnchors": [
        ("dataset-nul", {"dataset": "a\0b"}, "dataset"),
        ("dataset-up", {"dataset": "../x.h5"}, "", OUTSIDE),
        ("dataset-unknown", {"dataset": "x.h5"}, "", ABSENT),
        ("task-long", {"task": UNICODE * 20_000}, "task"),
        ("task-unknown", {"task": "chess"}, "", ABSENT),
        ("task-file-unknown", {"task": "chess.yaml"}, "", ABSENT),
        ("task-other-columns", {"task": "pusht"}, "", LATE),
        ("count-over", {"count": 5000}, "count"),
        ("episodes-over", {"count": 5, "one_per_episode": True}, "count"),
    ],
    "PerturbationSpec": [
        ("empty", {"gaussian_noise": None}, "."),
        *(  # within the range of the field, and too large for these frames
            (kind, {kind: {name: value}}, f"{kind}.{name}")
            for kind, name, value in (
                ("gaussian_blur", "kernel_size", 57), ("random_shift", "pixels", 28),
                ("defocus_blur", "radius", 27.5), ("motion_blur", "length", 54.5),
            )
        ),
        *(
            (f"registered-{name[:14]}", {"registered": {"name": name}}, "registered.name")
            for name in ("fog", "gaussian_noise", UNICODE * 200)
        ),
        (
            "parameters",
            {"registered": {"name": "fog", "parameters": {f"p{i}": 1.0 for i in range(65)}}},
            "registered.parameters",
        ),
    ],
    "PerturbationSet": [
        ("no-specs", {"specs": []}, "specs"),
        ("specs-many", {"specs": [wire.noise()] * 257}, "specs"),
        ("draws-of-all", {"specs": [wire.shrink()] * 256, "draws": 17}, "draws"),
        ("draws-over-frames", {"specs": [wire.noise()] * 2, "draws": 2048}, "draws"),
        ("given", {"specs": [wire.noise(), given_wire.given()]}, "specs[1].given_views"),
    ],
    "DistanceTerm": [*_weights("step_weights", 2), *_weights("coordinate_weights", 8)],
    "Objective": [*_weights("control_weights", 5), ("terms", {"terms": [{}] * 17}, "terms")],
    "CemBudget": [("all-elites", {"candidates": 8, "elites": 8}, "elites")],
    "Thresholds": [
        ("digest", {"source_digest": "e" * 63}, "source_digest"),
        ("family", {"family": "pldm"}, "family"),
    ],
    "EvidenceOptions": [("no-tail", {"confidence": 0.9995}, "resamples")],
    "ScoreProtocol": [
        ("weights-length", {"weights": [1.0]}, "weights"),
        ("weights-sum", {"weights": [0.25] * 8}, "weights"),
        ("extra-over", {"extra_horizons": [9]}, "extra_horizons"),
    ],
    "ComparePairRequest": PAIRS,
    "CertifyPoolRequest": [*MOMENTS, *SELECTIONS, *CANDIDATES],
    "PlanPairedRequest": [
        *MOMENTS,
        ("budget-billions", {"budget": {"candidates": HUGE}}, "budget.candidates"),
    ],
    "PlanStart": [*MOMENTS[:-3], *SELECTIONS[:1], *SELECTIONS[2:4]],
    "PlanPool": [*CANDIDATES, ("no-pool", {"candidates": None}, "candidates")],
    "GaussianProposal": [
        ("mean-width", {"mean": floats(3, 9)}, "mean.shape"),
        ("std-shape", {"std": floats(2, 10)}, "std.shape"),
        ("std-negative", {"std": floats(3, 10, at_end=-1e-9)}, "std.data"),
        ("std-overflow", {"std": floats(3, 10, value=3e38)}, "std.data"),
        ("none", {"candidates": 0}, "candidates"),
        ("billions", {"candidates": HUGE}, "candidates"),
    ],
    "ScoreCheckpointRequest": [
        *JOBS,
        ("no-checkpoint", {"checkpoint": None}, "checkpoint.name"),
        ("reference-family", {"reference": wire.checkpoint("pldm")}, "reference"),
        ("no-shift", {"perturbation": None}, "perturbation"),
        ("no-windows", {"protocol": {"horizon": 100}}, "dataset.count"),
        *(
            (f"{name}-of-all", {"protocol": {name: value}, "dataset": {
                "dataset": "tworoom.h5", "task": "tworoom", "count": count,
            }}, f"protocol.{name}")
            for name, value, count in (("draws", 1000, 1001), ("horizon", 256, 4000))
        ),
    ],
    "RunStudyRequest": [*JOBS, ("no-checkpoint", {"checkpoint": None}, "checkpoint.name")],
    "CreateAnchorSetRequest": [
        *((f"no-{name}", {name: 0}, name) for name in ("history", "horizon")),
        ("horizon-256", {"horizon": 256}, "source.count"),
        *(
            (f"{name}-huge", {"source": {"dataset": "tworoom.h5", "task": "tworoom", **fields}},
             "source.count")
            for name, fields in (("count", {"count": HUGE}), ("frameskip", {"frameskip": HUGE}))
        ),
    ],
    "DriftStudy": [*SHIFTED, ("groups-of-3-anchors", {"groups": 4}, "groups")],
    "PlannerStudy": [*SHIFTED, ("history-4", {"history": 4}, "history")],
    "GeometryStudy": SHIFTED,
    "SensitivityStudy": [
        ("directions-name", {"directions": "a b"}, "directions"),
        ("directions-of-a-dataset", {"directions": "light"}, "directions"),
    ],
}  # fmt: skip

PROPOSED: Rules = {
    **RULES,
    "PlanPool": [(name, {name: x}, name) for name, x in given_wire.said().items()],
}


def _proprio(field: str, *shape: int) -> Rows:
    *frames, width = shape
    fewer = [(f"{field}-few", {field: floats(n - 1, width)}, f"{field}.shape") for n in frames]
    return [
        (f"{field}-missing", {field: None}, field),
        (f"{field}-width", {field: floats(*frames, width + 1)}, field),
        *fewer,
        # A number that float32 holds, and no network.
        (f"{field}-huge", {field: floats(*shape, value=3e38)}, "", LATE),
    ]


PROPRIO, GOAL = _proprio("proprio", wire.HISTORY, WIDTH), _proprio("goal_proprio", WIDTH)
GIVEN: Rules = {
    "ComparePairRequest": [
        *PROPRIO,
        *_proprio("future_proprio", wire.HORIZON, WIDTH),
        ("future-of-none", {"observed_future": None}, "future_proprio.shape"),
        ("lewm", {"checkpoint": wire.checkpoint()}, "proprio"),
    ],
    "CertifyPoolRequest": [*PROPRIO, *GOAL],
    "PlanPairedRequest": [*PROPRIO, *GOAL],
    "PlanStart": [*PROPRIO, *GOAL],
}
