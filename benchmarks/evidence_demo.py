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
from typing import Any, NamedTuple

import numpy as np
import torch
from acpc.contract import EvidenceOptions, GaussianBlur, GaussianNoise, Look, Outcome, UntilDecided
from acpc.datasets import ColumnStatistics, WindowIndex, action_blocks, median_split_labels
from acpc_server.evidence import CheckpointSample, take_look
from acpc_server.models import FrozenWorldModel, rollout
from acpc_server.models.loader import load_checkpoint
from acpc_server.numerics import consistency, pairing, screening, to_model_input
from acpc_server.perturb import perturb_frames
from common import ROOT, WORLD, commit, run
from evidence_sequential import PROTOCOL, THRESHOLDS, weighed
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
        blocks = action_blocks(logged, actions, frameskip=SKIP)[:, : HISTORY + FUTURE - 1].copy()
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

    def separation(self, cell: Cell, size: int) -> float:
        """SR of the first anchors."""
        own, _ = self.samples(cell, size)
        ir_raw = np.quantile(own.radius, PROTOCOL.quantile)
        return float(np.mean(own.distance[own.eligible] > ir_raw + PROTOCOL.margin))

    def point(self, cell: Cell) -> Outcome:
        """The paper's verdict on all anchors."""
        own, reference = self.samples(cell, self.anchors)
        ir, to = (np.quantile(one.radius, PROTOCOL.quantile) for one in (own, reference))
        passes = ir / to <= THRESHOLDS.ir and self.separation(cell, self.anchors) >= THRESHOLDS.sr
        return Outcome.PASSED if passes else Outcome.FAILED

    def fixed(self, cell: Cell) -> Outcome:
        """The confident outcome of all anchors."""
        samples = self.samples(cell, self.anchors)
        return weighed(*samples, EvidenceOptions()).confident_outcome

    def sequential(self, cell: Cell) -> tuple[Outcome, int]:
        """That of a job until decided, and where it stopped."""
        seen: list[Look] = []
        for size in self.sizes:
            own, reference = self.samples(cell, size)
            weigh = partial(weighed, own, reference)
            found = take_look(
                weigh,  # type: ignore[arg-type]
                EvidenceOptions(),
                THRESHOLDS.sr,
                seen,
                self.anchors,
                anchors=size,
                eligible=int(own.eligible.sum()),
            )
            seen.append(found.look)
            if found.decided:
                return weigh(found.options).confident_outcome, size
        return Outcome.UNDECIDED, self.anchors


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


def truth(
    sweep: DemoSweep, whole: Mapping[str, np.ndarray], cell: Cell, distance: np.ndarray
) -> dict[str, float]:
    """Relative IR and SR of all anchors as one set."""
    ir, to = (
        np.quantile(whole[f"{name}/{cell[1]}"].mean(axis=1), PROTOCOL.quantile)
        for name in (cell[0], reference_of(cell[0]))
    )
    eligible = distance[np.isfinite(distance)]
    return {
        "relative_ir": float(ir / to),
        "sr_all_anchors": float(np.mean(eligible > ir + PROTOCOL.margin)),
    }


def _share(found: Sequence[Outcome], outcome: Outcome) -> float:
    return Counter(found)[outcome] / len(found)


def _wrong(found: Sequence[Outcome], passes: bool) -> float:
    return _share(found, Outcome.FAILED if passes else Outcome.PASSED)


class Said(NamedTuple):
    """What one set says of one cell, and SR of its first anchors at each look."""

    point: Outcome
    fixed: Outcome
    sequential: Outcome
    stopped: int
    separated: list[float]


def what_a_set_says(
    sweep: DemoSweep, measured: Mapping[str, np.ndarray], cells: Sequence[Cell]
) -> list[Said]:
    """Of each cell: the point verdict, the confident one, and that of a job until decided."""
    verdicts = Verdicts(sweep, measured)
    return [
        Said(
            verdicts.point(cell),
            verdicts.fixed(cell),
            *verdicts.sequential(cell),
            [verdicts.separation(cell, size) for size in verdicts.sizes],
        )
        for cell in cells
    ]


def summary(
    sweep: DemoSweep, cell: Cell, whole: Mapping[str, np.ndarray], distance: np.ndarray,
    said: Sequence[Said],
) -> dict[str, Any]:  # fmt: skip
    """One cell: what all anchors say of it, and how often a set says the same."""
    true = truth(sweep, whole, cell, distance)
    by_size = np.mean([one.separated for one in said], axis=0).tolist()
    passes = true["relative_ir"] <= THRESHOLDS.ir
    at_size = passes and by_size[-1] >= THRESHOLDS.sr
    at_all = passes and true["sr_all_anchors"] >= THRESHOLDS.sr
    return {
        "checkpoint": cell[0],
        "shift": cell[1],
        **true,
        "sr_by_anchors": by_size,
        "passes_as_so_many_do": at_size,
        "passes_as_all_anchors_do": at_all,
        "point": _outcomes([one.point for one in said], at_size, at_all),
        "confident": _outcomes([one.fixed for one in said], at_size, at_all),
        "until_decided": {
            **_outcomes([one.sequential for one in said], at_size, at_all),
            "anchors": float(np.mean([one.stopped for one in said])),
        },
    }


def report(sets: int = 200, together: int = 1, folder: Path = FOLDER) -> dict[str, Any]:
    """How often verdicts flip, are wrong or undecided, and the anchors that stopping saves.

    So many sets ``together`` make one job: 4 make jobs of 400 anchors.
    """
    sweep = DemoSweep(sets)
    cells = [(name, shift) for shift in SHIFTS for name in sweep.names]
    found = list(measured_sets(sweep, folder))
    kept = [joined(found[first : first + together]) for first in range(0, sets, together)]
    said = [what_a_set_says(sweep, measured, cells) for measured in kept]
    return summaries(sweep, cells, kept, said)


def joined(sets: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Several sets as one, in their order."""
    return {key: np.concatenate([one[key] for one in sets]) for key in sets[0]}


def summaries(
    sweep: DemoSweep,
    cells: Sequence[Cell],
    kept: Sequence[Mapping[str, np.ndarray]],
    said: Sequence[Sequence[Said]],
) -> dict[str, Any]:
    """All cells."""
    whole = joined(kept)
    _, distances = sweep.distances(whole, len(whole["trajectory"]))
    rows = [
        summary(sweep, cell, whole, distances[cell[0]], found)
        for cell, found in zip(cells, zip(*said, strict=True), strict=True)
    ]
    anchors = len(kept[0]["trajectory"])
    return {
        "sets": len(kept),
        "all_anchors": len(whole["trajectory"]),
        "anchors": anchors,
        "looks": LOOKS.sizes(anchors, EvidenceOptions().confidence),
        "cells": {f"{row['checkpoint']} {row['shift']}": row for row in rows},
    }


def _outcomes(found: Sequence[Outcome], at_size: bool, at_all: bool) -> dict[str, float]:
    return {
        "passed": _share(found, Outcome.PASSED),
        "failed": _share(found, Outcome.FAILED),
        "undecided": _share(found, Outcome.UNDECIDED),
        "wrong_as_so_many_say": _wrong(found, at_size),
        "wrong_as_all_anchors_say": _wrong(found, at_all),
    }


if __name__ == "__main__":
    run(report)
