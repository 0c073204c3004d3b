"""The client's planning calls against a server process: agreement with float64 NumPy, and flow."""

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy_reference as metrics
import pair_reference
import pixel_reference as pixels
import pytest
import wire
from acpc.arrays import NDArray
from acpc.contract import CemBudget, CemReturn, GaussianNoise, Identity
from acpc_client import PoolCertificate
from acpc_client.aio.client import AsyncAcpcClient
from acpc_client.sync.client import AcpcClient
from numpy.typing import ArrayLike
from reference_model import ReferenceModel
from served_world import ServedWorld
from server_process import ServerProcess

# Float32 network against float64, relative to the largest latent norm or the largest cost.
TOLERANCE = 1e-4
CANDIDATES, HORIZON, ELITES, DRAWS = 24, 3, 5, 3
SIGMAS = (0.0005, 0.02)
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Moment:
    """A planner's moment on random frames."""

    frames: int

    @property
    def question(self) -> dict[str, Any]:
        """Arguments of ``plan`` and ``certify_pool``."""
        return {
            "checkpoint": "lewm",
            "history": wire.frames(self.frames),
            "goal": wire.frames(1, seed=5)[0],
            "past_blocks": wire.blocks(self.frames - 1) if self.frames > 1 else None,
            "perturbations": [GaussianNoise(sigma) for sigma in SIGMAS],
            "draws": DRAWS,
            "seed": 7,
            "anchor": 3,
            "elite_count": ELITES,
        }

    @property
    def pool(self) -> NDArray[np.float32]:
        """Candidates (candidates, H, width)."""
        return wire.blocks(CANDIDATES * HORIZON, seed=11).reshape(CANDIDATES, HORIZON, -1)


def same_numbers(one: PoolCertificate, other: PoolCertificate) -> bool:
    """Everything but where and when."""
    left, right = one.to_dict(), other.to_dict()
    for part in (left, right):
        del part["request_id"], part["timing"], part["receipt"]
    return left == right


def rollouts(model: ReferenceModel, images: Array, past: Array | None, pool: Array) -> Array:
    """(candidates, H, dim) in float64."""
    latents = model.encode(images)
    before = np.empty((0, pool.shape[2])) if past is None else past.astype(np.float64)
    return np.stack([model.rollout(latents, np.concatenate([before, plan])) for plan in pool])


def close(found: ArrayLike, wanted: ArrayLike, size: float) -> None:
    """Differences of float32 latents lose digits: errors are judged against what they come from."""
    assert np.abs(np.asarray(found) - np.asarray(wanted)).max() <= TOLERANCE * size


@pytest.mark.parametrize("frames", [1, 3])
def test_a_session_certifies_what_float64_numpy_computes(
    client: AcpcClient, world: ServedWorld, frames: int
) -> None:
    moment = Moment(frames)
    question = moment.question
    with client.plan(**question) as session:
        answer = session.certify(moment.pool)
        assert session.receipt.checkpoint_digest == answer.receipt.checkpoint_digest
    model = world.reference("lewm")
    pool, past = moment.pool.astype(np.float64), question["past_blocks"]
    images = pixels.model_input(question["history"], model.image_size)
    (goal,) = model.encode(pixels.model_input(question["goal"][None], model.image_size))
    clean = rollouts(model, images, past, pool)
    length = float(np.linalg.norm(clean, axis=-1).max())
    largest = float(((clean[:, -1] - goal) ** 2).sum(axis=1).max())
    outcomes = set()
    for view in answer.views:
        shift = question["perturbations"][view.spec_index].to_spec()
        seen = pair_reference.perturbed(images, shift, seed=7, anchor=3, draw=view.draw)
        perturbed = rollouts(model, seen, past, pool)
        costs, other, moved, bounds = metrics.cost_bounds(clean[:, -1], perturbed[:, -1], goal)
        close(answer.clean_costs, costs, largest)
        close(view.perturbed_costs, other, largest)
        close(view.bounds, bounds, largest)
        close(view.displacements, moved, length)
        alphas = metrics.uniform(HORIZON)
        acpc = [metrics.acpc(a, b, alphas) for a, b in zip(clean, perturbed, strict=True)]
        close(view.acpc, acpc, length)
        assert np.all(view.bounds >= np.abs(view.perturbed_costs - answer.clean_costs))
        assert np.all(view.chained_bounds >= view.bounds)
        assert view.elite is not None
        for certificate, count in ((view.top1, 1), (view.elite, ELITES)):
            margin = metrics.elite_margin(list(costs), list(bounds), count)
            assert certificate.margin == pytest.approx(margin, abs=TOLERANCE * largest)
            assert certificate.certified == (certificate.margin > 0)
            outcomes.add(certificate.certified)
        assert answer.clean_winner == metrics.elites(list(costs), 1)[0]
        assert list(answer.clean_elites) == metrics.elites(list(costs), ELITES)
        if view.top1.certified:
            assert view.perturbed_winner == answer.clean_winner
    assert outcomes == {True, False}, "the moment should have both, or it shows nothing"


def test_sessions_of_one_asyncio_client_run_side_by_side(server: ServerProcess) -> None:
    moment = Moment(1)

    async def both() -> list[PoolCertificate]:
        async with AsyncAcpcClient(server.address) as client:

            async def one() -> PoolCertificate:
                async with client.plan(**moment.question) as session:
                    await session.certify(moment.pool[:7])
                    return await session.certify(moment.pool)

            return list(await asyncio.gather(one(), one()))

    first, second = asyncio.run(both())
    assert same_numbers(first, second)


def test_paired_plans_agree_where_they_are_certified(client: AcpcClient) -> None:
    question = Moment(1).question
    del question["elite_count"]
    budget = CemBudget(candidates=16, elites=4, iterations=3, horizon=HORIZON)
    shifts = [Identity(), GaussianNoise(1e-5), GaussianNoise(0.5)]
    for returns in (CemReturn.MEAN, CemReturn.BEST):
        answer = client.plan_paired(
            **{**question, "perturbations": shifts}, budget=budget, sampling_seed=3, returns=returns
        )
        assert answer.clean_plan.shape == (HORIZON, wire.WIDTH)
        views = [(view.spec_index, view.draw) for view in answer.views]
        assert views == [divmod(place, DRAWS) for place in range(9)]
        for view in answer.views:
            assert len(view.iterations) == budget.iterations
            assert view.selection_regret >= 0
            same = [iteration.same_elites for iteration in view.iterations]
            assert view.first_divergence == (None if all(same) else same.index(False))
            assert view.certified == all(item.elite.certified for item in view.iterations)
            if view.certified:
                assert view.selection_regret == 0
                assert np.array_equal(view.perturbed_plan, answer.clean_plan)
        assert all(view.certified for view in answer.views[:3])
        assert not any(view.certified for view in answer.views[6:])
        assert any(view.first_divergence is not None for view in answer.views[6:])
