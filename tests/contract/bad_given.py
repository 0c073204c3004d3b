"""Requests with proprioception, views and directions of one's own that can never work."""

from __future__ import annotations

from typing import Any

import given_wire as given
import numpy as np
import planning_wire as planning
import wire
from acpc.v1 import diagnostic_service_pb2 as pb
from bad_jobs import MethodCase
from bad_pairs import INVALID, NAN
from bad_pools import PoolCase
from bad_studies import request

WIDTH = given.PROPRIO
DATASET = {"dataset": "tworoom.h5", "task": "tworoom", "count": 4}
LATE = "FAILED_PRECONDITION"


def _full(*shape: int, value: float) -> Any:  # noqa: ANN401
    return wire.tensor(np.full(shape, value, np.float32))


def _rows(field: str, *shape: int) -> list[tuple[str, dict[str, Any], str, str]]:
    """What proprioception of a shape may not be."""
    *frames, width = shape
    other = wire.tensor(given.floats(*frames, width + 1))
    rank = wire.tensor(given.floats(*frames, 1, width))
    return [
        (f"{field}-missing", {field: None}, INVALID, field),
        (f"{field}-width", {field: other}, INVALID, field),
        (f"{field}-rank", {field: rank}, INVALID, f"{field}.shape"),
        (f"{field}-int", {field: wire.tensor(np.zeros(shape, int))}, INVALID, f"{field}.dtype"),
        (f"{field}-nan", {field: _full(*shape, value=NAN)}, INVALID, f"{field}.data"),
        (f"{field}-wide", {field: wire.tensor(np.full(shape, 1e300))}, INVALID, f"{field}.data"),
        # A number that float32 holds, and no network.
        (f"{field}-huge", {field: _full(*shape, value=3e38)}, LATE, ""),
    ]


def _few(field: str, frames: int) -> tuple[str, dict[str, Any], str, str]:
    fewer = wire.tensor(given.floats(frames - 1, WIDTH))
    return f"{field}-few", {field: fewer}, INVALID, f"{field}.shape"


PROPRIO = [*_rows("proprio", wire.HISTORY, WIDTH), _few("proprio", wire.HISTORY)]
FUTURE = [*_rows("future_proprio", wire.HORIZON, WIDTH), _few("future_proprio", wire.HORIZON)]
GOAL = _rows("goal_proprio", WIDTH)
REAL = (1, wire.HISTORY, wire.SIDE, wire.SIDE, 3)
ABOVE = float(np.nextafter(np.float32(1), np.float32(2)))
VIEWS: list[tuple[str, dict[str, Any], str, str]] = [
    *(
        (f"views={value}", {"explicit_views": _full(*REAL, value=value)}, INVALID,
         "explicit_views.data")
        for value in (ABOVE, -1e-45, NAN, float("inf"), 255.0)
    ),
    ("views-half", {"explicit_views": wire.tensor(np.zeros(REAL, np.float16))}, INVALID,
     "explicit_views.dtype"),
    ("views-size", {"explicit_views": _full(1, 3, 28, 27, 3, value=0)}, INVALID,
     "explicit_views.shape"),
    ("future-of-none", {"observed_future": None}, INVALID, "future_proprio.shape"),
    ("lewm", {"checkpoint": wire.checkpoint()}, INVALID, "proprio"),
]  # fmt: skip


def _unary() -> list[PoolCase]:
    makers = {
        "ComparePair": (given.pair, [*PROPRIO, *FUTURE, *VIEWS]),
        "CertifyPool": (given.certify, [*PROPRIO, *GOAL]),
        "PlanPaired": (given.paired, [*PROPRIO, *GOAL]),
    }
    return [
        PoolCase(f"{method}-{name}", make(**changed), code, field)
        for method, (make, rows) in makers.items()
        for name, changed, code, field in rows
    ]


def _streams() -> list[PoolCase]:
    cases = [
        PoolCase(f"start-{name}", given.session(**changed)[:1], code, field and f"start.{field}")
        for name, changed, code, field in [*PROPRIO, *GOAL]
    ]
    frame = {"frame": wire.tensor(wire.frames(1, seed=3)[0])}
    own = {"proprio": wire.tensor(given.floats(wire.HISTORY, WIDTH))}
    goals = [(name, {"goal": frame, **own, **row}, *rest) for name, row, *rest in GOAL]
    views = wire.frames(wire.HISTORY, seed=5)[None]
    wrong: list[tuple[str, dict[str, Any], str, str]] = [
        ("goal-proprio-alone", {**own, "goal_proprio": wire.tensor(given.floats(WIDTH))}, INVALID,
         "goal_proprio"),
        ("goal-size", {**own, "goal": {"frame": wire.tensor(wire.frames(1, height=27)[0])}},
         INVALID, "goal.frame.shape"),
    ]  # fmt: skip
    for name, changed, code, field in [*PROPRIO, *goals, *wrong]:
        start, pool, *_ = given.session()
        messages = [start, pool, planning.moved(**changed)]
        cases.append(PoolCase(f"frame-{name}", messages, code, field and f"frame.{field}"))
    shown = planning.start(explicit_views=wire.tensor(views))
    for name, after in {"frames": views[:, :2], "size": views[:, :, :27], "rank": views[0]}.items():
        changed = planning.moved().frame
        changed.explicit_views.CopyFrom(wire.tensor(after))
        messages = [shown, pb.PlanRequest(frame=changed)]
        cases.append(PoolCase(f"frame-views-{name}", messages, field="frame.explicit_views.shape"))
    return cases


def jobs(stored: str) -> list[MethodCase]:
    """Jobs on the set of ``given_wire.upload`` that ask for what it has not."""
    source: dict[str, Any] = {"dataset": None, "anchor_set": stored, "protocol": {"draws": 2}}
    group, dataset = "given_views.group", {"anchor_set": None, "dataset": DATASET}
    groups: list[tuple[str, dict[str, Any], str]] = [
        ("absent", {"perturbation": given.given("noon")}, f"perturbation.{group}"),
        ("nameless", {"perturbation": given.given("")}, f"perturbation.{group}"),
        ("pattern", {"perturbation": given.given("*")}, f"perturbation.{group}"),
        ("array", {"perturbation": given.given("views/night")}, f"perturbation.{group}"),
        ("directions", {"perturbation": given.given("light")}, f"perturbation.{group}"),
        ("newline", {"perturbation": given.given("night\n")}, f"perturbation.{group}"),
        ("long", {"perturbation": given.given("n" * 101)}, f"perturbation.{group}"),
        ("of-a-dataset", dataset, f"perturbation.{group}"),
        ("draws", {"protocol": {"draws": given.VIEWS + 1}}, "protocol.draws"),
        ("draws-default", {"protocol": {}}, "protocol.draws"),
        ("horizon", {"protocol": {"draws": 1, "horizon": wire.HORIZON + 1}}, "anchor_set"),
        ("proprio", {**dataset, "checkpoint": wire.checkpoint("dino"),
                     "perturbation": wire.noise()}, "dataset.task"),
    ]  # fmt: skip
    cases = [
        MethodCase(
            f"score-{name}",
            "ScoringService.ScoreCheckpoint",
            wire.score(**{**source, "perturbation": given.given(), **changed}),
            INVALID,
            field,
        )
        for name, changed, field in groups
    ]
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
    horizon = {"drift": {"horizon": 2}, "planner": {}}
    return cases + [
        MethodCase(
            f"{study}-{name}",
            "StudyService.RunStudy",
            request(study, {**horizon.get(study, {"horizon": 2}), **fields}, dataset=None,
                    anchor_set=stored),
            INVALID,
            f"{study}.{field}",
        )
        for name, study, fields, field in studies
    ]  # fmt: skip


BAD_GIVEN, BAD_GIVEN_STREAMS = _unary(), _streams()
