"""A planner's moment on a small checkpoint, in this process, and its answer in float64 loops."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy_reference as metrics
import pixel_reference as pixels
import torch
from acpc.arrays import NDArray
from acpc.contract import (
    CandidatePool,
    CheckpointRef,
    CostReduction,
    GaussianNoise,
    NumericMode,
    PairComparison,
    PairRequest,
    Perturbation,
    PerturbationSet,
    PlanStart,
    PoolCertificate,
)
from acpc_server.engine import CachedCheckpoint, CheckpointCache, DeviceClient
from acpc_server.interactive import EncodedMoment, Moment, PairComparer, Planner, pool_work
from acpc_server.models.folder import CheckpointLimits
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from public_checkpoint import public_config, write_checkpoint
from reference_model import ReferenceModel

Array = NDArray[np.float64]
CPU = torch.device("cpu")
SIDE, WIDTH, DIM = 28, 10, 16
SEEDS = (0, 3, 8)


def context() -> RequestContext:
    return RequestContext(Priority.INTERACTIVE, 60.0)


def noise(*sigmas: float, draws: int = 2, seed: int = 0) -> PerturbationSet:
    """Gaussian noise at some severities."""
    return drawn(*(GaussianNoise(sigma=sigma) for sigma in sigmas), draws=draws, seed=seed)


def drawn(*specs: Perturbation, draws: int = 2, seed: int = 0) -> PerturbationSet:
    return PerturbationSet(specs, draws, seed, 5)


def moment(seed: int = 0, length: int = 3, **changed: object) -> PlanStart:
    """A request with random frames; k is 4 and the cost is the mean."""
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (length + 1, SIDE, SIDE, 3), np.uint8)
    past = rng.standard_normal((length - 1, WIDTH), np.float32) if length > 1 else None
    request = PlanStart(
        checkpoint=CheckpointRef("m0"),
        history=frames[1:],
        past_blocks=past,
        goal=frames[0],
        views=noise(1e-4, 1e-2, 0.08, seed=seed),
        elite_count=4,
        cost_reduction=CostReduction.MEAN,
        numeric_mode=NumericMode.FP32,
    )
    return replace(request, **changed)


def pair(
    seed: int = 0, *specs: Perturbation, steps: int = 3, future: bool = False, scale: float = 1.0,
    **changed: object,
) -> PairRequest:  # fmt: skip
    """A request with random frames and actions, and two draws of noise or of ``specs``."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (3 + steps, SIDE, SIDE, 3), np.uint8)
    request = PairRequest(
        checkpoint=CheckpointRef("m0"),
        history=pixels[:3],
        action_blocks=scale * rng.standard_normal((2 + steps, WIDTH)).astype(np.float32),
        views=PerturbationSet(specs or (GaussianNoise(sigma=0.1),), 2, seed, 0),
        observed_future=pixels[3:] if future else None,
    )
    return replace(request, **changed)


def pool(seed: int = 0, candidates: int = 16, horizon: int = 3) -> NDArray[np.float32]:
    rng = np.random.default_rng(1000 + seed)
    return rng.standard_normal((candidates, horizon, WIDTH), np.float32)


class PlanningWorld:
    """Checkpoints ``m0``, ``m3``, ... on an engine of this process.

    Args:
        root: Where the checkpoints are written.
        threads: CPU threads of the engine; torch's default when 0.
    """

    def __init__(self, root: Path, threads: int = 0) -> None:
        for seed in SEEDS:
            write_checkpoint(root / f"m{seed}", public_config("shallow"), seed=seed)
        recorded = Metrics()
        self.engine = DeviceClient(CPU, recorded, threads=threads)
        self._checkpoints = CheckpointCache(
            root, CPU, recorded, limits=CheckpointLimits(), budget_bytes=2**30
        )

    def prepare(self, request: PlanStart, *, model: int = 0, **limits: int) -> Moment:
        """A moment that has nothing encoded yet, as CertifyPool has it."""
        return self._planner(**limits).prepare(self.checkpoint(model), request)

    def open(self, request: PlanStart, *, model: int = 0, **limits: int) -> EncodedMoment:
        prepared = self.prepare(request, model=model, **limits)
        return self._planner(**limits).encode(prepared, context())

    def _planner(self, **limits: int) -> Planner:
        return Planner(self.engine, **{"max_frames": 1000, "max_predictions": 100_000, **limits})

    def compare(
        self, request: PairRequest, given: RequestContext | None = None, *, model: int = 0
    ) -> PairComparison:
        comparer = PairComparer(self.engine, max_frames=1000)
        return comparer.compare(self.checkpoint(model), request, given or context())

    def checkpoint(self, model: int = 0) -> CachedCheckpoint:
        return self._checkpoints.get(f"m{model}")

    @staticmethod
    def reference(model: int = 0) -> ReferenceModel:
        return ReferenceModel.of(public_config("shallow"), model)


def certify_pool(
    opened: Moment | EncodedMoment,
    candidates: NDArray[np.float32],
    context: RequestContext,
    given: CandidatePool | None = None,
) -> PoolCertificate:
    """Certify a pool in this thread."""
    moment = opened if isinstance(opened, Moment) else opened.asked
    return moment.engine.run(pool_work(opened, candidates, context, given), context)


@dataclass(frozen=True)
class ReferenceView:
    """One view of a pool, candidate by candidate, with the summed or the mean cost."""

    clean_costs: list[float]
    perturbed_costs: list[float]
    displacements: list[float]
    bounds: list[float]
    chained_bounds: list[float]
    acpc_one_step: list[float]
    acpc: list[float]


def certify(
    clean: Array, perturbed: Array, goals: tuple[Array, Array], *, mean: bool, weights: list[float]
) -> ReferenceView:
    """The paper's quantities of rollouts (J, H, dim) from both histories, to the goal of each."""
    (goal, moved), m = goals, metrics.between(*goals)
    divisor = len(goal) if mean else 1
    c, c_view, r, b = metrics.cost_bounds(clean[:, -1], perturbed[:, -1], goal, moved)
    steps = [metrics.step_distances(a, p) for a, p in zip(clean, perturbed, strict=True)]
    acpc = [metrics.acpc(a, p, weights) for a, p in zip(clean, perturbed, strict=True)]
    reach = [metrics.between(x[-1], goal) + metrics.between(y[-1], moved)
             for x, y in zip(clean, perturbed, strict=True)]  # fmt: skip
    chained = [(a / weights[-1] ** 0.5 + m) * p for a, p in zip(acpc, reach, strict=True)]
    return ReferenceView(
        clean_costs=(c / divisor).tolist(),
        perturbed_costs=(c_view / divisor).tolist(),
        displacements=r.tolist(),
        bounds=(b / divisor).tolist(),
        chained_bounds=[value / divisor for value in chained],
        acpc_one_step=[distance[0] for distance in steps],
        acpc=acpc,
    )


def encoded(model: ReferenceModel, frames: NDArray[np.uint8]) -> Array:
    return model.encode(pixels.model_input(frames, model.image_size))
