"""What callers bring of their own, as they send it: objectives, proprioception, views, directions.

Nothing of the client.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anchor_wire
import numpy as np
import planning_wire
import wire
from acpc.arrays import NDArray
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1 import perturbation_pb2
from public_prejepa import TINY, public_prejepa, write_prejepa

PROPRIO, VIEWS, PROBES, ANCHORS = 4, 2, 2, 4
CHECKPOINT = "dino"


def write_dino(checkpoint_root: Path) -> None:
    """A PreJEPA checkpoint for the blocks of ``wire``, whose frames come with proprioception."""
    sizes = replace(TINY, slots={"proprio": (PROPRIO, 10), "action": (wire.WIDTH, 10)})
    write_prejepa(checkpoint_root / CHECKPOINT, sizes, public_prejepa(sizes))


def floats(*shape: int, seed: int = 2) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def objective(horizon: int = planning_wire.HORIZON) -> dict[str, Any]:
    rough = {"norm": pb.NORM_L1, "squared": False, "weight": 0.1, "step_weights": [0.2] * horizon}
    return {"terms": [{}, rough], "control_weights": [0.01]}


def said() -> dict[str, Any]:
    offsets = floats(planning_wire.CANDIDATES)
    return {"offsets": wire.tensor(offsets), "infeasible": [1, 4, 4]}


def selection() -> dict[str, Any]:
    return {"objective": objective(), "kept_elites": 2, "temperature": 0.5}


def proprio() -> dict[str, Any]:
    """A checkpoint that takes proprioception, and that of a history; views are real numbers."""
    return {
        "checkpoint": wire.checkpoint(CHECKPOINT),
        "proprio": wire.tensor(floats(wire.HISTORY, PROPRIO)),
    }


def real_views() -> dict[str, Any]:
    """Views that need not be whole levels; of ComparePair alone."""
    views = wire.frames(2 * wire.HISTORY, seed=5).reshape(2, wire.HISTORY, wire.SIDE, wire.SIDE, 3)
    return {"explicit_views": wire.tensor(views.astype(np.float32) / 255)}


def pair(**changed: object) -> pb.ComparePairRequest:
    future = {
        "observed_future": wire.tensor(wire.frames(wire.HORIZON, seed=6)),
        "future_proprio": wire.tensor(floats(wire.HORIZON, PROPRIO)),
    }
    return wire.pair(**{**proprio(), **real_views(), **future, **changed})


def certify(**changed: object) -> pb.CertifyPoolRequest:
    goal = {"goal_proprio": wire.tensor(floats(PROPRIO))}
    return planning_wire.certify(**{**proprio(), **goal, **selection(), **said(), **changed})


def paired(**changed: object) -> pb.PlanPairedRequest:
    goal = {"goal_proprio": wire.tensor(floats(PROPRIO)), "choices": True}
    return planning_wire.paired(**{**proprio(), **goal, "objective": objective(), **changed})


def session(**changed: object) -> list[pb.PlanRequest]:
    goal = {"goal_proprio": wire.tensor(floats(PROPRIO))}
    start = planning_wire.start(**{**proprio(), **goal, **selection(), **changed})
    candidates = wire.tensor(planning_wire.pool())
    pools = [pb.PlanRequest(pool={"candidates": candidates, **said()}), planning_wire.proposed(1)]
    later = proprio() | {"proprio": wire.tensor(floats(wire.HISTORY, PROPRIO, seed=7))}
    again = planning_wire.start(**{**later, **goal, **selection(), **changed})
    return [start, pools[0], again, pools[1]]


def given(group: str = "night") -> perturbation_pb2.PerturbationSpec:
    return perturbation_pb2.PerturbationSpec(given_views={"group": group})


def extras(count: int = ANCHORS, steps: int = wire.HISTORY + wire.HORIZON) -> dict[str, np.ndarray]:
    image = (wire.HISTORY, wire.SIDE, wire.SIDE, 3)
    views = wire.frames(count * VIEWS * wire.HISTORY, seed=9).reshape(count, VIEWS, *image)
    return {
        "views/night": views,
        "directions/light": floats(count, PROBES, *image),
        "proprio": floats(count, steps, PROPRIO),
    }


def upload(request_id: str = "", **changed: object) -> Iterator[Any]:
    """A set that every checkpoint of the small world can be scored on, in one shard."""
    yield anchor_wire.header(
        request_id, anchors=ANCHORS, history=wire.HISTORY, horizon=wire.HORIZON
    )
    rng, steps = np.random.default_rng(11), wire.HISTORY + wire.HORIZON
    fields = {
        "frames": wire.tensor(wire.frames(ANCHORS * steps).reshape(ANCHORS, steps, 28, 28, 3)),
        "action_blocks": wire.tensor(floats(ANCHORS, steps - 1, wire.WIDTH)),
        "endpoint_states": wire.tensor(rng.standard_normal((ANCHORS, 2))),
        "labels": wire.tensor(np.arange(ANCHORS) % 2),
        "anchor_ids": wire.tensor(np.arange(ANCHORS)),
        "extras": [
            anchor_wire.further(name, values, packed=name == "views/night")
            for name, values in extras().items()
        ],
    }
    yield anchor_wire.sealed(**{**fields, **changed})
