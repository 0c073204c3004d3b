"""Requests with proprioception, views and directions of one's own that can never work."""

from __future__ import annotations

from typing import Any

import given_wire as given
import numpy as np
import planning_wire as planning
import wire
from acpc.v1 import diagnostic_service_pb2 as pb
from bad_jobs import MethodCase, of
from bad_pairs import NAN, Case, Rows, cases
from bad_studies import request

WIDTH = given.PROPRIO
DATASET = {"dataset": "tworoom.h5", "task": "tworoom", "count": 4}
HORIZONS: dict[str, dict[str, int]] = {
    "drift": {"horizon": 2},
    "planner": {},
    "geometry": {"horizon": 2},
    "sensitivity": {"horizon": 2},
}
LATE = "FAILED_PRECONDITION"


def _full(*shape: int, value: float) -> Any:  # noqa: ANN401
    return wire.tensor(np.full(shape, value, np.float32))


def _rows(field: str, *shape: int) -> Rows:
    """What proprioception of a shape may not be."""
    *frames, width = shape
    other = wire.tensor(given.floats(*frames, width + 1))
    rank = wire.tensor(given.floats(*frames, 1, width))
    return [
        (f"{field}-missing", {field: None}, field),
        (f"{field}-width", {field: other}, field),
        (f"{field}-rank", {field: rank}, f"{field}.shape"),
        (f"{field}-int", {field: wire.tensor(np.zeros(shape, int))}, f"{field}.dtype"),
        (f"{field}-nan", {field: _full(*shape, value=NAN)}, f"{field}.data"),
        (f"{field}-wide", {field: wire.tensor(np.full(shape, 1e300))}, f"{field}.data"),
        # A number that float32 holds, and no network.
        (f"{field}-huge", {field: _full(*shape, value=3e38)}, "", LATE),
    ]


def _few(field: str, frames: int) -> tuple[Any, ...]:
    fewer = wire.tensor(given.floats(frames - 1, WIDTH))
    return f"{field}-few", {field: fewer}, f"{field}.shape"


PROPRIO = [*_rows("proprio", wire.HISTORY, WIDTH), _few("proprio", wire.HISTORY)]
FUTURE = [*_rows("future_proprio", wire.HORIZON, WIDTH), _few("future_proprio", wire.HORIZON)]
GOAL = _rows("goal_proprio", WIDTH)
REAL = (1, wire.HISTORY, wire.SIDE, wire.SIDE, 3)
ABOVE = float(np.nextafter(np.float32(1), np.float32(2)))
VIEWS: Rows = [
    *(
        (f"views={value}", {"explicit_views": _full(*REAL, value=value)}, "explicit_views.data")
        for value in (ABOVE, -1e-45, NAN, float("inf"), 255.0)
    ),
    (
        "views-half",
        {"explicit_views": wire.tensor(np.zeros(REAL, np.float16))},
        "explicit_views.dtype",
    ),
    ("views-size", {"explicit_views": _full(1, 3, 28, 27, 3, value=0)}, "explicit_views.shape"),
    ("future-of-none", {"observed_future": None}, "future_proprio.shape"),
    ("lewm", {"checkpoint": wire.checkpoint()}, "proprio"),
]


def _unary() -> list[Case]:
    makers = {
        "ComparePair": (given.pair, [*PROPRIO, *FUTURE, *VIEWS]),
        "CertifyPool": (given.certify, [*PROPRIO, *GOAL]),
        "PlanPaired": (given.paired, [*PROPRIO, *GOAL]),
    }
    return [
        case for method, (make, rows) in makers.items() for case in cases(rows, make, f"{method}-")
    ]


def _streams() -> list[Case]:
    frame = {"frame": wire.tensor(wire.frames(1, seed=3)[0])}
    own = {"proprio": wire.tensor(given.floats(wire.HISTORY, WIDTH))}
    goals = [(name, {"goal": frame, **own, **row}, *rest) for name, row, *rest in GOAL]
    views = wire.frames(wire.HISTORY, seed=5)[None]
    wrong: Rows = [
        (
            "goal-proprio-alone",
            {**own, "goal_proprio": wire.tensor(given.floats(WIDTH))},
            "goal_proprio",
        ),
        (
            "goal-size",
            {**own, "goal": {"frame": wire.tensor(wire.frames(1, height=27)[0])}},
            "goal.frame.shape",
        ),
    ]

    def moved(**changed: object) -> list[pb.PlanRequest]:
        start, pool, *_ = given.session()
        return [start, pool, planning.moved(**changed)]

    found = cases([*PROPRIO, *GOAL], lambda **row: given.session(**row)[:1], "start-", "start.")
    found += cases([*PROPRIO, *goals, *wrong], moved, "frame-", "frame.")
    shown = planning.start(explicit_views=wire.tensor(views))
    for name, after in {"frames": views[:, :2], "size": views[:, :, :27], "rank": views[0]}.items():
        changed = planning.moved().frame
        changed.explicit_views.CopyFrom(wire.tensor(after))
        messages = [shown, pb.PlanRequest(frame=changed)]
        found.append(Case(f"frame-views-{name}", messages, "frame.explicit_views.shape"))
    return found


def jobs(stored: str) -> list[MethodCase]:
    """Jobs on the set of ``given_wire.upload`` that ask for what it has not."""
    source: dict[str, Any] = {"dataset": None, "anchor_set": stored, "protocol": {"draws": 2}}
    group, dataset = "given_views.group", {"anchor_set": None, "dataset": DATASET}
    names = {"absent": "noon", "nameless": "", "pattern": "*", "array": "views/night",
             "directions": "light", "newline": "night\n", "long": "n" * 101}  # fmt: skip
    dino = {**dataset, "checkpoint": wire.checkpoint("dino"), "perturbation": wire.noise()}
    groups: Rows = [
        *(
            (label, {"perturbation": given.given(name)}, f"perturbation.{group}")
            for label, name in names.items()
        ),
        ("of-a-dataset", dataset, f"perturbation.{group}"),
        ("draws", {"protocol": {"draws": given.VIEWS + 1}}, "protocol.draws"),
        ("draws-default", {"protocol": {}}, "protocol.draws"),
        ("horizon", {"protocol": {"draws": 1, "horizon": wire.HORIZON + 1}}, "anchor_set"),
        ("proprio", dino, "dataset.task"),
    ]
    good = {**source, "perturbation": given.given()}
    scores = cases(groups, lambda **changed: wire.score(**{**good, **changed}), "score-")
    night, noon = given.given(), given.given("noon")
    studies: list[tuple[str, str, dict[str, Any], str]] = [
        ("absent", "drift", {"shifts": [night, noon], "draws": 2}, f"shifts[1].{group}"),
        ("draws", "geometry", {"shifts": [night], "draws": given.VIEWS + 1}, "draws"),
        ("draws", "planner", {"shifts": [night], "draws": given.VIEWS + 1}, "draws"),
        ("absent", "sensitivity", {"directions": "dusk", "probes": 1}, "directions"),
        ("views", "sensitivity", {"directions": "night", "probes": 1}, "directions"),
        ("pattern", "sensitivity", {"directions": "*", "probes": 1}, "directions"),
        ("probes", "sensitivity", {"directions": "light", "probes": given.PROBES + 1}, "probes"),
    ]
    asked = [
        Case(
            f"{study}-{name}",
            request(study, {**HORIZONS[study], **fields}, dataset=None, anchor_set=stored),
            f"{study}.{field}",
        )
        for name, study, fields, field in studies
    ]
    return [*of("ScoringService.ScoreCheckpoint", scores), *of("StudyService.RunStudy", asked)]


BAD_GIVEN, BAD_GIVEN_STREAMS = _unary(), _streams()
