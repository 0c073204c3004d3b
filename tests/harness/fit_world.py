"""Misfits of a model and its data: eight faults of a file or a task on the demo's world."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import torch
from acpc.contract import AnchorSource, EvidenceOptions, Fit
from acpc_server.data import Anchors, DatasetStore
from acpc_server.models import load_checkpoint, rollout
from acpc_server.numerics import to_model_input
from acpc_server.scoring.fit import check_fit, shard_errors
from golden import WORLD

sys.path.insert(0, str(WORLD))
from dataset import columns
from torch import Tensor

BLOCKS = 24
TASK = (WORLD / "two-room.yaml").read_text()
RAW = TASK.replace("action: action", "action: {column: action, normaliser: none}")


class Fault(NamedTuple):
    """What is wrong with a file or a task, and the cause that should be named; empty: none."""

    cause: str
    change: Callable[[dict[str, np.ndarray], int], None]
    task: str = TASK


def _actions(cause: str, change: Callable[[np.ndarray, int], np.ndarray]) -> Fault:
    def apply(held: dict[str, np.ndarray], seed: int) -> None:
        held["action"] = change(held["action"], seed)

    return Fault(cause, apply)


def _frames(cause: str, change: Callable[[np.ndarray], np.ndarray]) -> Fault:
    def apply(held: dict[str, np.ndarray], _: int) -> None:
        held["pixels"] = np.ascontiguousarray(change(held["pixels"]))

    return Fault(cause, apply)


def _shuffled(actions: np.ndarray, seed: int) -> np.ndarray:
    found: np.ndarray = np.random.default_rng(seed).permutation(actions)
    return found


FAULTS: Mapping[str, Fault] = {
    "actions one row late": _actions("later_actions", lambda x, _: np.roll(x, 1, axis=0)),
    "actions one row early": _actions("earlier_actions", lambda x, _: np.roll(x, -1, axis=0)),
    "actions negated": _actions("negated_actions", lambda x, _: -x),
    "actions shuffled over the file": _actions("", _shuffled),
    "another file's actions": _actions(
        "", lambda x, seed: columns(len(x) // (5 * BLOCKS), BLOCKS, seed + 1)["action"]
    ),
    "wrong normaliser": Fault("zscore_actions", lambda held, _: None, RAW),
    "frames upside down": _frames("upside_down", lambda x: x[:, ::-1]),
    "red and blue swapped": _frames("bgr", lambda x: x[..., ::-1]),
}


@cache
def _columns(episodes: int, seed: int) -> Mapping[str, np.ndarray]:
    return columns(episodes, BLOCKS, seed)


class FitWorld:
    """Checkpoints of the demo, and a folder of datasets of its world."""

    def __init__(
        self, root: Path, checkpoints: Iterable[Path], *, episodes: int, anchors: int
    ) -> None:
        self.store, self.root = DatasetStore(root), root
        self.episodes, self.anchors = episodes, anchors
        cpu = torch.device("cpu")
        self.models = {x.name: load_checkpoint(x.parent, x.name, device=cpu) for x in checkpoints}

    def write(self, name: str, seed: int, fault: Fault | None = None) -> None:
        held = dict(_columns(self.episodes, seed))
        if fault is not None:
            fault.change(held, seed)
        (self.root / f"{name}.yaml").write_text(fault.task if fault else TASK)
        with h5py.File(self.root / f"{name}.h5", "w") as file:
            for column, values in held.items():
                file[column] = values

    @torch.inference_mode()
    def fit(self, checkpoint: str, name: str, seed: int) -> Fit:
        source = AnchorSource(f"{name}.h5", f"{name}.yaml", count=self.anchors, seed=seed)
        anchors, model = self.store.anchors(source, history=3, horizon=8), self.models[checkpoint]

        def encode(some: Anchors, rows: range) -> Tensor:
            frames = torch.from_numpy(np.ascontiguousarray(some.read_frames(rows.start, rows.stop)))
            inputs = to_model_input(frames.flatten(0, 1), model.card.image_size)
            return model.encode(inputs).reshape(len(rows), -1, model.card.latent_dim)

        def roll(histories: Tensor, blocks: Tensor) -> Tensor:
            return rollout(model, histories, blocks)

        clean = encode(anchors, range(anchors.count))
        predicted = roll(clean[:, : anchors.history], torch.from_numpy(anchors.action_blocks))
        errors = shard_errors(
            anchors, clean, predicted, start=0, stop=anchors.count, rollout=roll, at_once=2
        )
        found = check_fit(anchors, errors, EvidenceOptions(), encode, roll)
        assert found is not None
        return found
