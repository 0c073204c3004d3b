"""Pools and plans where a visual change moves the goal: over the wire, against float64 loops."""

import asyncio
from typing import Any

import numpy as np
import numpy_reference as metrics
import pair_reference
import pixel_reference as pixels
import planning_world
import pytest
import wire
from acpc.arrays import NDArray
from acpc.contract import (
    ApplyTo,
    ArgumentError,
    DistanceTerm,
    GaussianBlur,
    GaussianNoise,
    Norm,
    Objective,
    Perturbation,
)
from acpc_client import AcpcClient, AsyncAcpcClient, CemBudget, PoolCertificate
from served_world import ServedWorld
from server_process import ServerProcess

SEED, ANCHOR, DRAWS, ELITES = 2**64 - 3, 17, 2, 3
SHIFTS: tuple[Perturbation, ...] = (GaussianNoise(0.0005), GaussianNoise(0.05), GaussianBlur(3))
FRAMES, PAST = wire.frames(4), wire.blocks(2)
HISTORY, GOAL = FRAMES[:3], FRAMES[3]
POOL = wire.blocks(6 * 3, seed=11).reshape(6, 3, -1)
QUESTION: dict[str, Any] = {
    "perturbations": SHIFTS, "draws": DRAWS, "seed": SEED, "anchor": ANCHOR, "past_blocks": PAST,
}  # fmt: skip
MOVED = [ApplyTo.GOAL, ApplyTo.BOTH]
Array = NDArray[np.float64]


class Loops:
    """Rollouts of the pool and goals, clean and under each view, in float64."""

    def __init__(self, world: ServedWorld) -> None:
        self._model = world.reference("lewm")
        self.clean, self.goal = self.rollouts(self._latents(HISTORY)), self._latents(GOAL[None])[0]

    def _latents(self, frames: NDArray[np.uint8], **key: int) -> Array:
        images, spec = pixels.model_input(frames, self._model.image_size), key.pop("spec", None)
        if spec is not None:
            images = pair_reference.perturbed(images, SHIFTS[spec].to_spec(), **key)
        return self._model.encode(images)

    def rollouts(self, latents: Array) -> Array:
        blocks = [np.concatenate([PAST, each]).astype(np.float64) for each in POOL]
        return np.stack([self._model.rollout(latents, each) for each in blocks])

    def view(self, apply_to: ApplyTo, spec: int, draw: int) -> tuple[Array, Array]:
        """The rollouts and the goal of one view; a goal's draws have a seed of their own."""
        key = {"spec": spec, "anchor": ANCHOR, "draw": draw}
        moved = self._latents(GOAL[None], seed=(SEED + 2**63) % 2**64, **key)[0]
        if apply_to is ApplyTo.GOAL:
            return self.clean, moved
        return self.rollouts(self._latents(HISTORY, seed=SEED, **key)), moved


@pytest.fixture(scope="module")
def loops(world: ServedWorld) -> Loops:
    return Loops(world)


@pytest.mark.parametrize("apply_to", MOVED, ids=str)
def test_every_number_is_that_of_a_moved_goal(
    client: AcpcClient, loops: Loops, apply_to: ApplyTo
) -> None:
    answer = client.certify_pool(
        "lewm", HISTORY, POOL, GOAL, apply_to=apply_to, elite_count=ELITES, **QUESTION
    )
    assert answer.receipt.parameters["apply_to"] == str(apply_to)
    weights = metrics.uniform(3)
    for view in answer.views:
        other, moved = loops.view(apply_to, view.spec_index, view.draw)
        goals = loops.goal, moved
        expected = planning_world.certify(loops.clean, other, goals, mean=False, weights=weights)
        for name in ("perturbed_costs", "bounds", "chained_bounds"):
            np.testing.assert_allclose(getattr(view, name), getattr(expected, name), rtol=1e-3)
        for name in ("displacements", "acpc", "acpc_one_step"):
            found, wanted = getattr(view, name), getattr(expected, name)
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)
        for selection, count in ((view.top1, 1), (view.elite, ELITES)):
            margin = metrics.elite_margin(expected.clean_costs, expected.bounds, count)
            assert selection is not None
            assert selection.margin == pytest.approx(margin, abs=1e-3 * max(expected.clean_costs))
        assert (np.abs(view.perturbed_costs - answer.clean_costs) <= view.bounds).all()
        assert 0 <= view.excess_cost <= view.excess_cost_bound
    np.testing.assert_allclose(answer.clean_costs, expected.clean_costs, rtol=1e-4)


@pytest.mark.parametrize("apply_to", MOVED, ids=str)
def test_an_objective_of_every_step_is_bounded_too(
    client: AcpcClient, loops: Loops, apply_to: ApplyTo
) -> None:
    steps = (0.2, 0.3, 0.5)
    objective = Objective((DistanceTerm(Norm.L1, squared=False, step_weights=steps),))
    answer = client.certify_pool(
        "lewm", HISTORY, POOL, GOAL, apply_to=apply_to, objective=objective, **QUESTION
    )
    for view in answer.views:
        other, moved = loops.view(apply_to, view.spec_index, view.draw)
        costs, bounds = np.zeros(len(POOL)), np.zeros(len(POOL))
        for j, (x, y) in enumerate(zip(loops.clean, other, strict=True)):
            for weight, ours, theirs in zip(steps, x, y, strict=True):
                costs[j] += weight * np.abs(theirs - moved).sum()
                bounds[j] += weight * np.abs(theirs - ours).sum()
                bounds[j] += weight * np.abs(moved - loops.goal).sum()
        np.testing.assert_allclose(view.perturbed_costs, costs, rtol=1e-4)
        np.testing.assert_allclose(view.bounds, bounds, rtol=1e-3)


def test_sessions_of_both_clients_answer_the_same(
    client: AcpcClient, server: ServerProcess
) -> None:
    asked = {**QUESTION, "apply_to": ApplyTo.BOTH, "elite_count": ELITES}
    alone = client.certify_pool("lewm", HISTORY, POOL, GOAL, **asked)
    with client.plan("lewm", HISTORY, GOAL, **asked) as session:
        found = [session.certify(POOL)]

    async def ask() -> PoolCertificate:
        async with (
            AsyncAcpcClient(server.address) as other,
            other.plan("lewm", HISTORY, GOAL, **asked) as session,
        ):
            return await session.certify(POOL)

    for answer in (*found, asyncio.run(ask())):
        assert answer.receipt == alone.receipt
        for view, same in zip(answer.views, alone.views, strict=True):
            np.testing.assert_allclose(view.bounds, same.bounds, rtol=1e-3)
            assert view.top1.certified == same.top1.certified


@pytest.mark.parametrize("apply_to", MOVED, ids=str)
def test_paired_plans_part_where_the_goal_moves_them(client: AcpcClient, apply_to: ApplyTo) -> None:
    """A certified run returns the same plan; one far off does not, and its regret is counted."""
    budget = CemBudget(candidates=16, elites=4, iterations=3, horizon=3)
    shifts = [GaussianNoise(1e-6), GaussianNoise(0.5)]
    asked = {**QUESTION, "perturbations": shifts, "apply_to": apply_to}
    answer = client.plan_paired("lewm", HISTORY, GOAL, budget, sampling_seed=2, **asked)
    assert answer.receipt.parameters["apply_to"] == str(apply_to)
    for view in answer.views:
        assert all(step.bound_violations == 0 for step in view.iterations)
        assert view.certified == (view.spec_index == 0)
        assert np.array_equal(view.perturbed_plan, answer.clean_plan) == view.certified
        assert view.selection_regret >= 0


def test_what_has_no_frame_of_a_goal_is_refused(client: AcpcClient) -> None:
    moved = {**QUESTION, "apply_to": ApplyTo.GOAL}
    with pytest.raises(ArgumentError, match=r"apply_to: found goal, but goal\.latent has no frame"):
        client.certify_pool("lewm", HISTORY, POOL, np.zeros(16, np.float32), **moved)
    own = {"views": HISTORY[None], "past_blocks": PAST, "apply_to": ApplyTo.BOTH}
    with pytest.raises(ArgumentError, match="apply_to: found both, but views of your own"):
        client.certify_pool("lewm", HISTORY, POOL, GOAL, **own)
    with pytest.raises(TypeError, match="unexpected option 'apply_to'"):
        client.compare_pair("lewm", HISTORY, wire.blocks(), apply_to=ApplyTo.GOAL)
