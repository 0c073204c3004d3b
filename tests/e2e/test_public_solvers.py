"""The hook in the public library's solvers, and its own models, against float64 loops."""

import functools
import importlib
import json
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy_reference as metrics
import pair_reference
import pixel_reference as pixels
import pytest
import torch
import wire
from acpc.arrays import NDArray
from acpc.contract import GaussianNoise
from acpc_client.sync.client import AcpcClient
from acpc_lab.integrations import CemCertificates
from public_library import RELEASES, Kind, public_module, public_release, public_solver
from reference_model import ReferenceModel
from served_world import ServedWorld

# Float32 network against float64, relative to the largest cost.
TOLERANCE = 1e-4
CANDIDATES, HORIZON, ELITES, KEPT, DRAWS, SEED = 12, 2, 3, 1, 2, 7
STEPS = {"CEM": 2, "ICEM": 2, "CategoricalCEM": 4}
MINIMISED = [
    ("CEM", 1), ("ICEM", 1), ("CEM", 3), ("ICEM", 3), ("CategoricalCEM", 1),
    ("PredictiveSampling", 1),
]  # fmt: skip
Array = NDArray[np.float64]


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Iterator[str]:
    with public_release(request.param):
        yield request.param


def rollouts(model: ReferenceModel, images: Array, past: Array | None, pool: Array) -> Array:
    """Endpoints (candidates, dim) in float64."""
    latents = model.encode(images)
    before = np.empty((0, pool.shape[2])) if past is None else past.astype(np.float64)
    return np.stack([model.rollout(latents, np.concatenate([before, plan]))[-1] for plan in pool])


def breaks(pool: Array) -> Array:
    return np.abs(pool).max(axis=(1, 2)) > 2.2


def margin(costs: Array, bounds: Array, count: int) -> float:
    """Of the lowest ``count``, in loops; minus infinity where they reach into the infeasible."""
    chosen = metrics.elites(list(costs), count)
    if any(np.isinf(costs[i]) for i in chosen):
        return -np.inf
    return metrics.elite_margin(list(costs), list(bounds), count)


@pytest.mark.parametrize(
    ("kind", "frames", "constrained", "best"),
    [
        ("CEM", 1, False, False),
        ("CEM", 3, True, False),
        ("ICEM", 1, True, True),
        ("ICEM", 3, False, False),
    ],
)
def test_the_hook_certifies_what_loops_compute(
    client: AcpcClient, world: ServedWorld, release: str,
    kind: Literal["CEM", "ICEM"], frames: int, constrained: bool, best: bool,
) -> None:  # fmt: skip
    """Past blocks travel as the library's evaluators want them: candidates are future ones."""
    kept, model, pools = KEPT * (kind == "ICEM"), world.reference("lewm"), []
    history, goal = wire.frames(frames), wire.frames(1, seed=5)
    past = wire.blocks(frames - 1) if frames > 1 else None
    images = pixels.model_input(history, model.image_size)
    (target,) = model.encode(pixels.model_input(goal, model.image_size))

    def cost(info: dict[str, Any], pool: torch.Tensor) -> torch.Tensor:
        before = info["action_history"][0, 0].numpy() if "action_history" in info else None
        pools.append(pool[0].double().numpy())
        ends = rollouts(model, images, before, pools[-1])
        costs = ((ends - target) ** 2).sum(axis=1)
        return torch.from_numpy(np.where(constrained & breaks(pools[-1]), np.inf, costs))[None]

    noise = GaussianNoise(0.0002)
    hook = CemCertificates(
        lambda env: client.plan(
            "lewm", history, goal[0], past_blocks=hook.rows[env].get("action_history"),
            perturbations=noise, draws=DRAWS, seed=SEED, elite_count=ELITES, kept_elites=kept,
        ),
        constrained=constrained,
    )  # fmt: skip
    own = {"n_elite_keep": KEPT, "return_mean": not best} if kind == "ICEM" else {}
    given = {"num_samples": CANDIDATES, "topk": ELITES, "n_steps": STEPS[kind], **own}
    info = {"pixels": torch.zeros(1, frames)}
    if past is not None:
        info["action_history"] = torch.from_numpy(past)[None]
    solver = public_solver(cost, shape=(HORIZON, wire.WIDTH), kind=kind, **given)
    hook.attach(solver).solve(info)
    assert any(breaks(pool).any() for pool in pools) >= constrained
    for step, (item, pool) in enumerate(zip(hook.iterations[0], pools, strict=True)):
        assert item.cost_gap < TOLERANCE
        clean, margins = rollouts(model, images, past, pool), []
        for draw in range(DRAWS):
            seen = pair_reference.perturbed(images, noise.to_spec(), seed=SEED, anchor=0, draw=draw)
            ends = rollouts(model, seen, past, pool)
            costs, _, _, bounds = metrics.cost_bounds(clean, ends, target)
            shown = np.where(constrained & breaks(pool), np.inf, costs)
            counts = {ELITES, kept or ELITES, 1 if best and step == STEPS[kind] - 1 else ELITES}
            margins.append(min(margin(shown, bounds, count) for count in counts))
        assert item.margin == pytest.approx(min(margins), abs=TOLERANCE * float(costs.max()))
        assert item.certified == (item.margin > 0)
        assert item.same_selection or item.margin == -np.inf, "a tie at infinity is nobody's choice"


def build(config: Any) -> Any:
    if not isinstance(config, dict):
        return config
    named = {key: build(value) for key, value in config.items() if not key.startswith("_")}
    if (target := config.get("_target_")) is None:
        return named
    if target.endswith("vit_hf"):
        return vit(named)
    module, _, name = target.rpartition(".")
    library, _, inner = module.partition("stable_worldmodel.")
    kind = getattr(importlib.import_module(library) if library else public_module(inner), name)
    return functools.partial(kind, **named) if config.get("_partial_") else kind(**named)


def vit(named: dict[str, Any]) -> torch.nn.Module:
    from transformers import ViTConfig, ViTModel

    for key in ("size", "pretrained", "use_mask_token"):
        named.pop(key, None)
    return ViTModel(ViTConfig(**named), add_pooling_layer=False, use_mask_token=False)


@pytest.mark.parametrize(
    ("release", "kind", "frames"),
    [
        (release, kind, frames)
        for release in RELEASES
        for kind, frames in MINIMISED
        if frames == 1 or release != "wheel"  # whose models read first blocks as past ones
    ],
    indirect=["release"],
)
def test_the_librarys_own_model_is_certified_as_it_minimises(
    client: AcpcClient, world: ServedWorld, release: str, kind: Kind, frames: int
) -> None:
    """Of 0.1.1 the model itself; of newer sources an evaluator of its objective, and histories.

    A discrete pool is of one-hot actions, and soon mostly of copies.
    """
    folder = world.checkpoint_root / "lewm"
    config = json.loads((folder / "config.json").read_text())
    model = build(config).eval()
    model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
    if release == "source":
        objective = public_module("planning.objective")
        model = public_module("planning.evaluator").ShootingCostEvaluator(
            model, objective.WeightedSum([(1.0, objective.GoalMSE())])
        )
    history, goal = wire.frames(frames), wire.frames(1, seed=5)
    size = world.reference("lewm").image_size
    shown = [torch.from_numpy(pixels.model_input(x, size)).float()[None] for x in (history, goal)]
    info = dict(zip(("pixels", "goal"), shown, strict=True))
    info["action"] = torch.zeros(1, 1, wire.WIDTH)
    if frames > 1:
        info["action_history"] = torch.from_numpy(wire.blocks(frames - 1))[None]
    one_pool = kind == "PredictiveSampling"
    elites, steps = (1, 1) if one_pool else (ELITES, STEPS[kind])
    hook = CemCertificates(
        lambda env: client.plan(
            "lewm", history, goal[0], past_blocks=hook.rows[env].get("action_history"),
            perturbations=GaussianNoise(0.0002), draws=DRAWS, elite_count=elites,
            kept_elites=elites * (kind == "ICEM"),
        )
    )  # fmt: skip
    given = {} if one_pool else {"topk": elites, "n_steps": steps}
    solver = public_solver(
        model, shape=(HORIZON, wire.WIDTH), kind=kind, num_samples=CANDIDATES, **given
    )
    outputs = hook.attach(solver).solve(info)
    assert len(hook.iterations[0]) == steps
    for item in hook.iterations[0]:
        assert item.same_selection
        assert item.cost_gap < TOLERANCE
    distinct = [item.certificate.distinct_candidates for item in hook.iterations[0]]
    assert (distinct[-1] < CANDIDATES / 2) == (kind == "CategoricalCEM")
    assert outputs["actions"].shape[:2] == (1, HORIZON)
