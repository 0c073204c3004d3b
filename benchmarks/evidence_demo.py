"""The demonstration's sweep on many disjoint anchor sets: what a verdict is worth.

Every set is 100 windows of 120 episodes of its own, as the
demonstration's dataset is, measured by the server's own functions. What a set says is compared with
what all of them say together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from acpc.contract import EvidenceOptions, GaussianBlur, GaussianNoise, Outcome, UntilDecided
from acpc.datasets import (
    ColumnStatistics,
    Normaliser,
    WindowIndex,
    action_blocks,
    median_split_labels,
)
from acpc_server.evidence import CheckpointSample
from acpc_server.models import FrozenWorldModel, rollout
from acpc_server.models.loader import load_checkpoint
from acpc_server.numerics import consistency, pairing, screening, to_model_input
from acpc_server.perturb import perturb_frames
from common import ROOT, WORLD, commit, run
from evidence_sequential import PROTOCOL, THRESHOLDS, until_decided, weighed
from torch import Tensor
from world import Episodes, render, simulate

HISTORY, FUTURE, SKIP, SIDE = 3, 8, 5, 32
EPISODES, BLOCKS, ANCHORS, SEED = 120, 24, 100, 20261122
SHIFTS = {"gaussian_noise:0.08": GaussianNoise(0.08), "blur:5": GaussianBlur(5)}
WEIGHTS = consistency.horizon_weights((), FUTURE)
LOOKS = UntilDecided()
FOLDER = ROOT / "build/evidence_demo" / commit()


class DemoSweep:
    """The sweep's checkpoints, and a two-room world large enough for ``sets`` anchor sets."""

    def __init__(self, sets: int) -> None:
        self.sets = sets
        self.names = sorted(folder.name for folder in (WORLD / "sweep").iterdir())
        self._windows = WindowIndex(
            np.full(EPISODES, BLOCKS * SKIP), num_steps=HISTORY + FUTURE, frameskip=SKIP
        )

    @cached_property
    def models(self) -> dict[str, FrozenWorldModel]:
        """By name, on the CPU."""
        cpu = torch.device("cpu")
        return {name: load_checkpoint(WORLD / "sweep", name, device=cpu) for name in self.names}

    @cached_property
    def log(self) -> Episodes:
        """Episodes of all sets, one after another."""
        return simulate(self.sets * EPISODES, BLOCKS, SEED)

    @cached_property
    def statistics(self) -> tuple[ColumnStatistics, ColumnStatistics]:
        """Of positions and of actions, over the whole log."""
        found = []
        for column in (self.log.positions, self.log.actions):
            rows = column.reshape(-1, 2)
            rows = rows[np.isfinite(rows).all(axis=1)]
            found.append(ColumnStatistics(rows.mean(axis=0), rows.std(axis=0, ddof=1), len(rows)))
        return found[0], found[1]

    @torch.inference_mode()
    def measure(self, number: int) -> dict[str, np.ndarray]:
        """Everything that verdicts on one set are made of, shifts and checkpoints together."""
        positions, actions = self.statistics
        generator = torch.Generator().manual_seed(number)
        chosen = torch.randperm(len(self._windows), generator=generator)[:ANCHORS].numpy()
        episode, start = self._windows.locate(chosen)
        episode = episode + number * EPISODES
        rows = start[:, None] + np.arange(HISTORY + FUTURE) * SKIP
        places = self.log.positions[episode[:, None], rows]
        frames = to_model_input(torch.from_numpy(render(places)).flatten(0, 1), SIDE)
        clean = frames.reshape(ANCHORS, HISTORY + FUTURE, 3, SIDE, SIDE)
        taken = start[:, None] + np.arange((HISTORY + FUTURE) * SKIP)
        logged = self.log.actions[episode[:, None], taken]
        blocks = action_blocks(logged, Normaliser(actions), frameskip=SKIP)[
            :, : HISTORY + FUTURE - 1
        ].copy()
        ids = chosen + number * len(self._windows)
        out = {
            "states": positions.standardise(places[:, -1]),
            "trajectory": episode,
            "blocks": blocks,
        }
        views = {name: _views(clean, ids, name) for name in SHIFTS}
        for name, model in self.models.items():
            latents = _encode(model, frames).reshape(ANCHORS, HISTORY + FUTURE, -1)
            own = rollout(model, latents[:, :HISTORY], torch.from_numpy(blocks))
            scale = screening.motion_scale(screening.transitions(latents[:, HISTORY - 1 :]))
            out |= {
                f"{name}/history": latents[:, :HISTORY].numpy(),
                f"{name}/own": own.numpy(),
                f"{name}/scale": scale.numpy(),
            }
            for shift, seen in views.items():
                draws = seen.shape[1]
                moved = _encode(model, seen.flatten(0, 2)).reshape(-1, HISTORY, own.shape[-1])
                taken_blocks = torch.from_numpy(blocks).repeat_interleave(draws, dim=0)
                rolled = rollout(model, moved, taken_blocks).reshape(ANCHORS, draws, FUTURE, -1)
                steps = consistency.step_distances(own[:, None], rolled)
                radius = screening.normalised_radius(consistency.acpc(steps, WEIGHTS), scale)
                out[f"{name}/{shift}"] = radius.numpy()
        return out

    @torch.inference_mode()
    def distances(
        self, measured: Mapping[str, np.ndarray], count: int
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Partners among the first anchors, and each checkpoint's D_i; NaN where skipped."""
        states = torch.from_numpy(measured["states"][:count])
        labels = torch.from_numpy(median_split_labels(measured["states"][:count, :1]))
        partner = pairing.pair_different_labels(states, labels, PROTOCOL.neighbourhood).partner
        own = torch.nonzero(partner >= 0)[:, 0]
        other = partner[own]
        blocks = torch.from_numpy(measured["blocks"])
        mixed = torch.cat([blocks[other, : HISTORY - 1], blocks[own, HISTORY - 1 :]], dim=1)
        found = {}
        for name, model in self.models.items():
            history = torch.from_numpy(measured[f"{name}/history"])
            rolled = torch.cat(
                [
                    rollout(model, history[other[part]], mixed[part])
                    for part in torch.arange(len(own)).split(1000)
                ]
            )
            values = np.full(count, np.nan)
            values[own.numpy()] = screening.different_state_distance(
                torch.from_numpy(measured[f"{name}/own"])[own],
                rolled,
                WEIGHTS,
                torch.from_numpy(measured[f"{name}/scale"])[own],
            ).numpy()
            found[name] = values
        return partner.numpy(), found


def _encode(model: FrozenWorldModel, frames: Tensor) -> Tensor:
    return torch.cat([model.encode(part) for part in frames.split(512)])


def _views(clean: Tensor, ids: np.ndarray, shift: str) -> Tensor:
    draws = range(PROTOCOL.draws if shift.startswith("gaussian_noise") else 1)
    drawn = [
        torch.stack(
            [
                perturb_frames(frames[:HISTORY], SHIFTS[shift], seed=0, anchor=int(one), draw=draw)
                for draw in draws
            ]
        )
        for frames, one in zip(clean, ids, strict=True)
    ]
    return torch.stack(drawn)


def reference_of(name: str) -> str:
    """The unaugmented checkpoint of the same run."""
    return f"noise-0.00-{name[-5:]}"


Cell = tuple[str, str]


class Verdicts:
    """What one set says of each checkpoint under each shift."""

    def __init__(self, sweep: DemoSweep, measured: Mapping[str, np.ndarray]) -> None:
        self._sweep, self._measured = sweep, measured
        self.anchors = len(measured["trajectory"])
        self.sizes = LOOKS.sizes(self.anchors, EvidenceOptions().confidence)
        self._paired = {size: sweep.distances(measured, size) for size in self.sizes}

    def samples(self, cell: Cell, size: int) -> tuple[CheckpointSample, CheckpointSample]:
        """Checkpoint and reference on the first anchors."""
        partner, distance = self._paired[size]

        def sample(name: str) -> CheckpointSample:
            radius = self._measured[f"{name}/{cell[1]}"][:size].mean(axis=1)
            return CheckpointSample(
                radius, distance[name], partner, self._measured["trajectory"][:size]
            )

        return sample(cell[0]), sample(reference_of(cell[0]))

    def point(self, cell: Cell) -> Outcome:
        """The paper's verdict on all anchors."""
        own, reference = self.samples(cell, self.anchors)
        ir, to = (np.quantile(one.radius, PROTOCOL.quantile) for one in (own, reference))
        separated = np.mean(own.distance[own.eligible] > ir + PROTOCOL.margin)
        passes = ir / to <= THRESHOLDS.ir and separated >= THRESHOLDS.sr
        return Outcome.PASSED if passes else Outcome.FAILED

    def fixed(self, cell: Cell) -> Outcome:
        """The confident outcome of all anchors."""
        samples = self.samples(cell, self.anchors)
        return weighed(*samples, EvidenceOptions()).confident_outcome

    def sequential(self, cell: Cell) -> tuple[Outcome, int]:
        """That of a job until decided, and where it stopped."""
        return until_decided(partial(self.samples, cell), self.sizes)


def measured_sets(sweep: DemoSweep, folder: Path) -> Iterator[dict[str, np.ndarray]]:
    """Every set, measured where it is not on disk yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(sweep.sets):
        path = folder / f"{number:03d}.npz"
        if not path.exists():
            part = folder / f".{number:03d}.npz"
            np.savez(part, **sweep.measure(number))
            part.replace(path)
        with np.load(path) as saved:
            yield dict(saved)


def truth(whole: Mapping[str, np.ndarray], cell: Cell, distance: np.ndarray) -> dict[str, float]:
    """Relative IR and SR of all anchors as one set."""
    ir, to = (
        np.quantile(whole[f"{name}/{cell[1]}"].mean(axis=1), PROTOCOL.quantile)
        for name in (cell[0], reference_of(cell[0]))
    )
    eligible = distance[np.isfinite(distance)]
    return {
        "relative_ir": float(ir / to),
        "sr": float(np.mean(eligible > ir + PROTOCOL.margin)),
    }


def outcomes(found: Sequence[Outcome], passes: bool) -> dict[str, float]:
    """How often each outcome came, and how often it was wrong."""
    counts = Counter(found)
    share = {name: counts[Outcome[name.upper()]] / len(found) for name in ("passed", "failed")}
    return {**share, "wrong": share["failed" if passes else "passed"]}


def report(sets: int = 200, folder: Path = FOLDER) -> dict[str, Any]:
    """How often verdicts of single sets are wrong or undecided, and the anchors stopping saves."""
    sweep = DemoSweep(sets)
    kept = list(measured_sets(sweep, folder))
    verdicts = [Verdicts(sweep, measured) for measured in kept]
    whole = {key: np.concatenate([one[key] for one in kept]) for key in kept[0]}
    _, distances = sweep.distances(whole, len(whole["trajectory"]))
    cells = {}
    for cell in [(name, shift) for shift in SHIFTS for name in sweep.names]:
        true = truth(whole, cell, distances[cell[0]])
        passes = true["relative_ir"] <= THRESHOLDS.ir and true["sr"] >= THRESHOLDS.sr
        stopped = [one.sequential(cell) for one in verdicts]
        cells[" ".join(cell)] = {
            **true,
            "point": outcomes([one.point(cell) for one in verdicts], passes),
            "confident": outcomes([one.fixed(cell) for one in verdicts], passes),
            "until_decided": {
                **outcomes([outcome for outcome, _ in stopped], passes),
                "anchors": float(np.mean([anchors for _, anchors in stopped])),
            },
        }
    return {"sets": sets, "anchors": ANCHORS, "looks": verdicts[0].sizes, "cells": cells}


if __name__ == "__main__":
    run(report)
