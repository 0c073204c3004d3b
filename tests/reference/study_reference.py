"""The rows of every study in float64, from frames to columns, written from the paper's text.

Shares with the server only what is its promise: the draws of noise, probes and pool normals, and
which actions a seed swaps and shuffles. Shifts are Gaussian noise. Where the released code differs
from the paper's letter a keyword says which of the two is computed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy_reference as metrics
import pixel_reference as pixels
import torch
from acpc.arrays import NDArray
from acpc_server.numerics.local import gaussian_probe, rademacher_probe
from acpc_server.numerics.updates import pool_normals
from acpc_server.perturb import DrawKey, Draws
from acpc_server.studies import drift
from reference_model import ReferenceModel
from score_reference import Anchors

Array = NDArray[np.float64]
Row = dict[str, float]


@dataclass(frozen=True)
class StudyAnchors:
    """Anchors of a dataset and the trajectory of each; ``history`` frames come first."""

    anchors: Anchors
    trajectories: list[int]
    history: int

    def __iter__(self) -> Iterator[tuple[int, Array, Array]]:
        """Identity, frames and blocks of each anchor."""
        yield from zip(self.anchors.ids, self.anchors.frames, self.anchors.blocks, strict=True)


def noisy(images: Array, sigma: float, *, seed: int, anchor: int, draw: int) -> Array:
    draws = Draws("gaussian_noise", [DrawKey(seed, anchor, draw)], torch.device("cpu"))
    normals = draws.normals(images.shape).double().numpy()
    return pixels.noisy(images, normals, sigma)


def drift_rows(
    model: ReferenceModel,
    given: StudyAnchors,
    sigmas: Sequence[float],
    *,
    draws: int,
    seed: int,
    groups: int,
    destroyed: Sequence[dict[str, Array]] | None = None,
) -> list[Row]:
    """Sec. "ACPC and Prediction-Error Change"; ``destroyed``: see ``destroyed_windows``."""
    h = given.history
    horizon = len(given.anchors.frames[0]) - h
    weights = metrics.uniform(horizon)
    partners = drift.swapped_partners(np.array(given.trajectories), seed)
    seen = list(dict.fromkeys(given.trajectories))
    rows = []
    for index, (identity, frames, blocks) in enumerate(given):
        images = pixels.model_input(frames, model.image_size)
        clean = model.encode(images)
        past, future = blocks[: h - 1], blocks[h - 1 :]
        order = drift.shuffled_order(horizon, seed=seed, anchor=identity)
        actions = {
            "acpc": blocks,
            "acpc_zeroed": np.concatenate([past, np.zeros_like(future)]),
            "acpc_swapped": np.concatenate([past, given.anchors.blocks[partners[index]][h - 1 :]]),
            "acpc_shuffled": np.concatenate([past, future[order]]),
        }
        if destroyed is not None:
            actions |= destroyed[index]
        rollouts = {name: model.rollout(clean[:h], a) for name, a in actions.items()}
        clean_error = metrics.prediction_error(rollouts["acpc"], clean[h:], weights)
        for shift, sigma in enumerate(sigmas):
            for draw in range(draws):
                view = noisy(images[:h], sigma, seed=seed, anchor=identity, draw=draw)
                latents = model.encode(view)
                others = {name: model.rollout(latents, a) for name, a in actions.items()}
                error = metrics.prediction_error(others["acpc"], clean[h:], weights)
                rows.append(
                    {
                        "anchor": identity,
                        "group": seen.index(given.trajectories[index]) % groups,
                        "shift": shift,
                        "severity": sigma,
                        "draw": draw,
                        "encoder_shift": metrics.encoder_shift(clean[:h], latents),
                        "acpc_one_step": metrics.between(rollouts["acpc"][0], others["acpc"][0]),
                        **{
                            name: metrics.acpc(rollouts[name], others[name], weights)
                            for name in actions
                        },
                        "clean_error": clean_error,
                        "perturbed_error": error,
                        "drift": abs(error - clean_error),
                    }
                )
    return rows


def destroyed_windows(
    given: StudyAnchors, partners: Sequence[int], orders: Sequence[Sequence[int]]
) -> list[dict[str, Array]]:
    """Destroyed actions as the released code has them: the whole window's, past included.

    Args:
        given: Anchors whose windows hold the blocks that leave all of their frames.
        partners: Whose actions each anchor gets; a permutation that may leave some in place.
        orders: A permutation of the window's blocks for each anchor.
    """
    windows = given.anchors.window_blocks
    used = len(given.anchors.blocks[0])
    return [
        {
            "acpc_zeroed": np.zeros_like(window)[:used],
            "acpc_swapped": windows[partner][:used],
            "acpc_shuffled": np.stack([window[k] for k in order])[:used],
        }
        for window, partner, order in zip(windows, partners, orders, strict=True)
    ]


def geometry_rows(
    model: ReferenceModel, given: StudyAnchors, sigmas: Sequence[float], *, draws: int, seed: int
) -> tuple[list[Row], dict[str, Array]]:
    """App. "Local-Geometry Case-Study Definitions": rows, and the representations behind them."""
    h = given.history
    spaces: dict[str, list[list[Array]]] = {"encoder": [], "rollout": []}
    for identity, frames, blocks in given:
        images = pixels.model_input(frames[:h], model.image_size)
        views = [
            noisy(images, sigma, seed=seed, anchor=identity, draw=draw)
            for sigma in sigmas
            for draw in range(draws)
        ]
        latents = [model.encode(view) for view in (images, *views)]
        spaces["encoder"].append([x[-1] for x in latents])
        spaces["rollout"].append([model.rollout(x, blocks)[-1] for x in latents])
    rows: list[Row] = [{"anchor": identity} for identity in given.anchors.ids]
    arrays = {}
    for space, representations in spaces.items():
        clean = [v[0] for v in representations]
        radius = [max(metrics.between(m, v[0]) for m in v[1:]) for v in representations]
        for i, row in enumerate(rows):
            others = {j: metrics.between(clean[i], clean[j]) for j in range(len(clean)) if j != i}
            row[f"{space}_radius"] = radius[i]
            row[f"{space}_nearest"] = min(others.values())
            row[f"{space}_disjoint"] = all(d > radius[i] + radius[j] for j, d in others.items())
        arrays[f"{space}_clean"] = np.array(clean)
        arrays[f"{space}_views"] = np.array([v[1:] for v in representations])
    return rows, arrays


def unit_directions(given: Array, size: int) -> Array:
    """(probes, h, height, width, 3) as (probes, h, 3, size, ...), root mean square 1 each."""
    given = given / np.abs(given).max(axis=(1, 2, 3, 4), keepdims=True)
    none = np.zeros(given.shape[1:])
    seen = np.array(
        [pixels.model_input(x * 255, size) - pixels.model_input(none, size) for x in given]
    )
    seen *= pixels.STD[:, None, None]  # the resize is linear
    return seen / np.sqrt(np.mean(seen**2, axis=(1, 2, 3, 4), keepdims=True))


def sensitivity_rows(
    model: ReferenceModel,
    given: StudyAnchors,
    *,
    probes: int,
    seed: int,
    step: float,
    directions: Sequence[Array] = (),
) -> list[Row]:
    """App. "Local Sensitivity under Gaussian Noise"; the derivative by central differences.

    ``directions`` of each anchor are taken by both methods instead of random probes.
    """
    h = given.history
    weights = metrics.uniform(len(given.anchors.frames[0]) - h)
    scale = np.sqrt(np.array(weights))[:, None]
    tiny = 1e-5
    rows = []
    for place, (identity, frames, blocks) in enumerate(given):
        images = pixels.model_input(frames[:h], model.image_size)
        own = unit_directions(directions[place], model.image_size) if directions else None

        def weighted(
            direction: Array, length: float, images: Array = images, blocks: Array = blocks
        ) -> Array:
            moved = images + length * direction / pixels.STD[:, None, None]
            return scale * model.rollout(model.encode(moved), blocks)

        for probe in range(probes):
            key = {"seed": seed, "anchor": identity, "probe": probe}
            signs = rademacher_probe(images.shape, **key).double().numpy()
            signs = signs if own is None else own[probe]
            slope = (weighted(signs, tiny) - weighted(signs, -tiny)) / (2 * tiny)
            rows.append({**_named(identity, 0, probe), "squared_norm": metrics.norm(slope) ** 2})
        for probe in range(probes):
            key = {"seed": seed, "anchor": identity, "probe": probe}
            normals = gaussian_probe(images.shape, **key).double().numpy()
            normals = normals if own is None else own[probe]
            change = weighted(normals, step) - weighted(normals, 0.0)
            norm = metrics.norm(change) ** 2 / step**2
            rows.append({**_named(identity, 1, probe), "squared_norm": norm})
    return rows


def _named(anchor: int, method: int, probe: int) -> Row:
    return {"anchor": anchor, "method": method, "probe": probe}


@dataclass(frozen=True)
class Budget:
    """Size of a CEM run."""

    candidates: int
    elites: int
    iterations: int
    horizon: int


@dataclass(frozen=True)
class _Run:
    """One CEM run: its pools, the costs of each and the elites, and what it returns."""

    pools: list[Array]
    costs: list[list[float]]
    elites: list[list[int]]
    plan: Array


def planner_rows(
    model: ReferenceModel,
    given: StudyAnchors,
    sigmas: Sequence[float],
    budget: Budget,
    *,
    draws: int,
    seed: int,
    sampling_seed: int,
    history: int,
    goal_offset: int,
) -> tuple[list[Row], dict[str, Array]]:
    """App. "Adaptive-CEM Selection-Regret Protocol"; rows, and the arrays of the clean pools.

    A row has the features of the last pool and, as ``first_...``, those of the pool of step 0,
    which the released code takes. ``acpc_q90`` is that of Eq. acpc-h, ``displacement_q90`` that of
    the final-step distances r_j, which is the released code's feature at the planner's horizon.
    """
    rows: list[Row] = []
    arrays: dict[str, list[list[float]]] = {}
    now = given.history
    weights = metrics.uniform(budget.horizon)
    measures: dict[str, Callable[[Array, Array], float]] = {
        "acpc_one_step_q90": lambda a, b: metrics.between(a[0], b[0]),
        "acpc_q90": lambda a, b: metrics.acpc(a, b, weights),
        "displacement_q90": lambda a, b: metrics.between(a[-1], b[-1]),
    }
    for identity, frames, blocks in given:
        images = pixels.model_input(frames, model.image_size)[now - history :]
        past = blocks[now - history : now - 1]
        clean = model.encode(images[:history])
        goal = model.encode(images[history + goal_offset - 1 :][:1])[0]
        noise_key = (sampling_seed + identity) % 2**64
        run = _cem(model, clean, past, goal, budget, noise_key)
        gaps = [sorted(costs)[1] - sorted(costs)[0] for costs in run.costs]
        for shift, sigma in enumerate(sigmas):
            for draw in range(draws):
                view = noisy(images[:history], sigma, seed=seed, anchor=identity, draw=draw)
                latents = model.encode(view)
                other = _cem(model, latents, past, goal, budget, noise_key)
                found: dict[str, list[float]] = {name: [] for name in measures}
                broken = 0
                for candidates in run.pools:
                    both = [
                        [model.rollout(x, np.concatenate([past, a])) for x in (clean, latents)]
                        for a in candidates
                    ]
                    for name, measure in measures.items():
                        each = [measure(a, b) for a, b in both]
                        found[name].append(metrics.quantile(each, 0.9))
                    broken += sum(_breaks_a_bound(a, b, goal, weights) for a, b in both)
                costs = [_cost(model, clean, past, p, goal) for p in (run.plan, other.plan)]
                same = [set(a) == set(b) for a, b in zip(run.elites, other.elites, strict=True)]
                found["clean_gap"] = gaps
                rows.append(
                    {
                        "anchor": identity,
                        "shift": shift,
                        "severity": sigma,
                        "draw": draw,
                        **{name: values[-1] for name, values in found.items()},
                        "selection_regret": max(0.0, costs[1] - costs[0]),
                        "first_divergence": same.index(False) if False in same else -1,
                        **{f"first_{name}": values[0] for name, values in found.items()},
                        "candidate_pairs": budget.candidates * budget.iterations,
                        "bound_violations": broken,
                    }
                )
                for name, values in found.items():
                    arrays.setdefault(f"pool_{name}", []).append(values)
    return rows, {name: np.array(values) for name, values in arrays.items()}


def _breaks_a_bound(clean: Array, other: Array, goal: Array, weights: Sequence[float]) -> bool:
    """Of a candidate's rollouts: the cost change against b_j, and the error change against ACPC.

    Beyond float64 rounding. The error is the distance from the goal, held for all steps: the bound
    holds for any target.
    """
    near, far = metrics.between(clean[-1], goal), metrics.between(other[-1], goal)
    bound = metrics.between(clean[-1], other[-1]) * (near + far)
    held = np.tile(goal, (len(clean), 1))
    errors = [metrics.prediction_error(x, held, weights) for x in (clean, other)]
    acpc = metrics.acpc(clean, other, weights)
    return bool(abs(far**2 - near**2) > bound + 1e-9 or abs(errors[1] - errors[0]) > acpc + 1e-9)


def _cost(model: ReferenceModel, latents: Array, past: Array, plan: Array, goal: Array) -> float:
    """Mean squared distance of the plan's endpoint to the goal."""
    end = model.rollout(latents, np.concatenate([past, plan]))[-1]
    return metrics.between(end, goal) ** 2 / len(goal)


def _cem(
    model: ReferenceModel, latents: Array, past: Array, goal: Array, budget: Budget, seed: int
) -> _Run:
    shape = (budget.horizon, past.shape[1])
    mean, std = np.zeros(shape), np.ones(shape)
    pools, every, chosen = [], [], []
    for iteration in range(budget.iterations):
        normals = pool_normals(
            seed,
            iteration,
            candidates=budget.candidates,
            horizon=budget.horizon,
            width=past.shape[1],
        ).numpy()
        pool = np.stack([mean, *(mean + std * normals[1:])]).astype(np.float64)
        costs = [_cost(model, latents, past, plan, goal) for plan in pool]
        elites = metrics.elites(costs, budget.elites)
        picked = pool[elites]
        mean, std = picked.mean(axis=0), picked.std(axis=0, ddof=1)
        pools.append(pool)
        every.append(costs)
        chosen.append(list(elites))
    return _Run(pools, every, chosen, mean)
