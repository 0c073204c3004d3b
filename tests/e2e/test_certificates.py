"""Pools, plans and sessions of both clients, whatever the change moves, against float64 loops."""

import asyncio
from dataclasses import asdict
from typing import Any

import grpc
import numpy as np
import numpy_reference as metrics
import pair_reference
import pixel_reference as pixels
import planning_wire as planning
import planning_world
import pytest
import wire
from acpc.arrays import NDArray
from acpc.contract import (
    ApplyTo,
    ArgumentError,
    CemReturn,
    DistanceTerm,
    GaussianBlur,
    GaussianNoise,
    Norm,
    Objective,
    Perturbation,
)
from acpc.v1.diagnostic_service_pb2 import PlanRequest, PlanResponse
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from acpc_client import AcpcClient, AsyncAcpcClient, CemBudget, PoolCertificate, Receipt
from acpc_client.errors import InvalidArgument, SessionClosed
from served_world import ServedWorld
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS

SEED, ANCHOR, DRAWS, ELITES = 2**64 - 3, 17, 2, 3
SHIFTS: tuple[Perturbation, ...] = (GaussianNoise(0.0005), GaussianNoise(0.05), GaussianBlur(3))
FRAMES = wire.frames(5)
HISTORY, GOAL, PAST = FRAMES[:3], FRAMES[3], wire.blocks(2)
POOL = wire.blocks(24 * 3, seed=11).reshape(24, 3, -1)
VIEWS: dict[str, Any] = {"perturbations": SHIFTS, "draws": DRAWS, "seed": SEED, "anchor": ANCHOR}
QUESTION: dict[str, Any] = {**VIEWS, "past_blocks": PAST}
MOVED = [ApplyTo.GOAL, ApplyTo.BOTH]
PLACES = [ApplyTo.HISTORY, *MOVED]
Array = NDArray[np.float64]


class Loops:
    """Rollouts of the pool and goals, clean and under each view, in float64."""

    def __init__(self, world: ServedWorld, frames: int = 3) -> None:
        self._model, self._history = world.reference("lewm"), HISTORY[3 - frames :]
        self._past = PAST[3 - frames :]
        self.clean = self.rollouts(self._latents(self._history))
        self.goal = self._latents(GOAL[None])[0]

    def _latents(self, frames: NDArray[np.uint8], **key: int) -> Array:
        images, spec = pixels.model_input(frames, self._model.image_size), key.pop("spec", None)
        if spec is not None:
            images = pair_reference.perturbed(images, SHIFTS[spec].to_spec(), **key)
        return self._model.encode(images)

    def rollouts(self, latents: Array) -> Array:
        blocks = [np.concatenate([self._past, each]).astype(np.float64) for each in POOL]
        return np.stack([self._model.rollout(latents, each) for each in blocks])

    def view(self, apply_to: ApplyTo, spec: int, draw: int) -> tuple[Array, Array]:
        """The rollouts and the goal of one view; a goal's draws have a seed of their own."""
        key = {"spec": spec, "anchor": ANCHOR, "draw": draw}
        rollouts, goal = self.clean, self.goal
        if apply_to is not ApplyTo.HISTORY:
            goal = self._latents(GOAL[None], seed=(SEED + 2**63) % 2**64, **key)[0]
        if apply_to is not ApplyTo.GOAL:
            rollouts = self.rollouts(self._latents(self._history, seed=SEED, **key))
        return rollouts, goal


@pytest.mark.parametrize(
    ("apply_to", "frames"), [(ApplyTo.HISTORY, 1), *((place, 3) for place in PLACES)], ids=str
)
def test_every_number_is_that_of_the_loops(
    client: AcpcClient, world: ServedWorld, apply_to: ApplyTo, frames: int
) -> None:
    loops, asked = Loops(world, frames), {**VIEWS, "apply_to": apply_to, "elite_count": ELITES}
    past = PAST[3 - frames :] if frames > 1 else None
    answer = client.certify_pool(
        "lewm", HISTORY[3 - frames :], POOL, GOAL, past_blocks=past, **asked
    )
    assert answer.receipt.parameters.get("apply_to", "history") == str(apply_to)
    weights, outcomes = metrics.uniform(3), set()
    for view in answer.views:
        other, moved = loops.view(apply_to, view.spec_index, view.draw)
        goals = loops.goal, moved
        expected = planning_world.certify(loops.clean, other, goals, mean=False, weights=weights)
        largest = max(expected.clean_costs)
        # Of small distances between float32 latents, which lost digits that costs have.
        for name in ("perturbed_costs", "bounds", "chained_bounds"):
            found, wanted = getattr(view, name), getattr(expected, name)
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5 * largest)
        for name in ("displacements", "acpc", "acpc_one_step"):
            found, wanted = getattr(view, name), getattr(expected, name)
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)
        for selection, count in ((view.top1, 1), (view.elite, ELITES)):
            margin = metrics.elite_margin(expected.clean_costs, expected.bounds, count)
            assert selection is not None
            assert selection.margin == pytest.approx(margin, abs=1e-3 * largest)
            assert selection.certified == (selection.margin > 0)
            outcomes.add(selection.certified)
        assert (np.abs(view.perturbed_costs - answer.clean_costs) <= view.bounds).all()
        assert (view.chained_bounds >= view.bounds).all()
        assert 0 <= view.excess_cost <= view.excess_cost_bound
        assert view.perturbed_winner == answer.clean_winner or not view.top1.certified
    np.testing.assert_allclose(answer.clean_costs, expected.clean_costs, rtol=1e-4)
    assert list(answer.clean_elites) == metrics.elites(list(expected.clean_costs), ELITES)
    certified = [view.top1.certified for view in answer.views]
    assert answer.top1_certified_fraction == sum(certified) / len(certified)
    assert apply_to is not ApplyTo.HISTORY or outcomes == {True, False}


@pytest.mark.parametrize("apply_to", MOVED, ids=str)
def test_an_objective_of_every_step_is_bounded_too(
    client: AcpcClient, world: ServedWorld, apply_to: ApplyTo
) -> None:
    loops, steps = Loops(world), (0.2, 0.3, 0.5)
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


@pytest.mark.parametrize(
    ("apply_to", "returns"),
    [(ApplyTo.HISTORY, CemReturn.BEST), *((place, CemReturn.MEAN) for place in PLACES)],
    ids=str,
)
def test_paired_plans_part_where_they_are_not_certified(
    client: AcpcClient, apply_to: ApplyTo, returns: CemReturn
) -> None:
    """A certified run returns the same plan; one far off does not, and its regret is counted."""
    budget = CemBudget(candidates=16, elites=4, iterations=3, horizon=3)
    shifts = [GaussianNoise(1e-6), GaussianNoise(0.5)]
    asked = {**QUESTION, "perturbations": shifts, "apply_to": apply_to, "returns": returns}
    answer = client.plan_paired("lewm", HISTORY, GOAL, budget, sampling_seed=2, **asked)
    assert answer.clean_plan.shape == (3, wire.WIDTH)
    assert answer.receipt.parameters.get("apply_to", "history") == str(apply_to)
    assert [(view.spec_index, view.draw) for view in answer.views] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    for view in answer.views:
        assert [step.bound_violations for step in view.iterations] == [0] * budget.iterations
        assert view.certified == (view.spec_index == 0)
        assert view.certified == all(item.elite.certified for item in view.iterations)
        assert np.array_equal(view.perturbed_plan, answer.clean_plan) == view.certified
        assert view.selection_regret == 0 if view.certified else view.selection_regret >= 0
        same = [iteration.same_elites for iteration in view.iterations]
        assert view.first_divergence == (None if all(same) else same.index(False))


def test_what_has_no_frame_of_a_goal_is_refused(client: AcpcClient) -> None:
    moved = {**QUESTION, "apply_to": ApplyTo.GOAL}
    with pytest.raises(ArgumentError, match=r"apply_to: found goal, but goal\.latent has no frame"):
        client.certify_pool("lewm", HISTORY, POOL, np.zeros(16, np.float32), **moved)
    own = {"views": HISTORY[None], "past_blocks": PAST, "apply_to": ApplyTo.BOTH}
    with pytest.raises(ArgumentError, match="apply_to: found both, but views of your own"):
        client.certify_pool("lewm", HISTORY, POOL, GOAL, **own)
    with pytest.raises(TypeError, match="unexpected option 'apply_to'"):
        client.compare_pair("lewm", HISTORY, wire.blocks(), apply_to=ApplyTo.GOAL)


# What each moment of a session is asked with; the last has another elite count and other views.
MOMENTS: list[dict[str, Any]] = [
    {"history": FRAMES[:1], "goal": FRAMES[4], "elite_count": ELITES, **VIEWS},
    {"history": HISTORY, "goal": GOAL, "elite_count": ELITES, "apply_to": ApplyTo.BOTH, **QUESTION},
    {"history": FRAMES[3:4], "goal": FRAMES[0], "perturbations": GaussianBlur(3), "elite_count": 2},
]


def fresh(client: AcpcClient, moment: dict[str, Any]) -> tuple[Receipt, PoolCertificate]:
    with client.plan("lewm", **moment) as session:
        return session.receipt, session.certify(POOL)


def check_same(found: PoolCertificate, wanted: PoolCertificate) -> None:
    """The same decisions, and numbers up to the order in which rows of a batch are summed."""
    assert found.clean_elites == wanted.clean_elites
    np.testing.assert_allclose(found.clean_costs, wanted.clean_costs, rtol=1e-5)
    for one, other in zip(found.views, wanted.views, strict=True):
        assert one.perturbed_winner == other.perturbed_winner
        # Of small distances between latents, whose last bits weigh more here than in costs.
        np.testing.assert_allclose(one.bounds, other.bounds, rtol=1e-3, atol=2e-4)
    assert asdict(found.receipt) == asdict(wanted.receipt)


def test_both_clients_begin_moments_that_answer_as_new_sessions(
    client: AcpcClient, server: ServerProcess
) -> None:
    wanted = [fresh(client, moment) for moment in MOMENTS]
    check_same(wanted[1][1], client.certify_pool("lewm", candidates=POOL, **MOMENTS[1]))
    with client.plan("lewm", **MOMENTS[0]) as session:
        for moment, (receipt, certificate) in zip(MOMENTS, wanted, strict=True):
            assert asdict(session.restart("lewm", **moment)) == asdict(receipt)
            assert asdict(session.receipt) == asdict(receipt)
            assert session.elite_count == moment["elite_count"]
            found = session.certify(POOL)
            check_same(found, certificate)
            assert found.request_id == session.request_id

    async def ask() -> list[PoolCertificate]:
        answers = []
        async with (
            AsyncAcpcClient(server.address) as other,
            other.plan("lewm", **MOMENTS[0]) as session,
        ):
            for moment in MOMENTS:
                await session.restart("lewm", **moment)
                answers.append(await session.certify(POOL))
        return answers

    for found, (_, certificate) in zip(asyncio.run(ask()), wanted, strict=True):
        check_same(found, certificate)


def test_a_moment_that_is_wrong_ends_the_session_and_names_its_field(client: AcpcClient) -> None:
    with client.plan("lewm", **MOMENTS[0]) as session:
        with pytest.raises(InvalidArgument) as raised:
            session.restart("lewm", FRAMES[:2], FRAMES[4], **VIEWS)
        assert [v.field for v in raised.value.violations] == ["start.past_blocks.shape"]
        with pytest.raises(SessionClosed):
            session.certify(POOL)


def test_draws_bound_how_many_may_change_a_choice(client: AcpcClient) -> None:
    """One bound a random perturbation, of this pool's or plan's draws; none without chance."""
    views = {**VIEWS, "perturbations": [GaussianBlur(3), GaussianNoise(0.0005)], "draws": 20}
    moment = "lewm", FRAMES[:1], POOL, FRAMES[4]
    answer = client.certify_pool(*moment, elite_count=5, **views)
    for choice in ("top1", "elite"):
        (bound,) = getattr(answer, f"{choice}_may_change")
        drawn = [getattr(view, choice).certified for view in answer.views[-20:]]
        assert (bound.spec_index, bound.draws) == (1, 20)
        assert bound.uncertified == drawn.count(False)
        assert bound.uncertified / 20 < bound.share <= 1
        assert "of 20 not certified" in str(bound)
    given = client.certify_pool(*moment, views=FRAMES[None, 1:2], elite_count=5)
    assert (given.top1_may_change, given.elite_may_change) == ((), ())
    top1 = client.certify_pool(*moment, **views)
    assert (len(top1.top1_may_change), top1.elite_may_change) == (1, ())
    budget = CemBudget(candidates=8, elites=2, iterations=2, horizon=3)
    plans = client.plan_paired("lewm", FRAMES[:1], FRAMES[4], budget, **views)
    (bound,) = plans.plan_may_change
    assert bound.uncertified == [view.certified for view in plans.views[-20:]].count(False)


def test_a_proposal_is_sampled_by_its_seed_alone(channel: grpc.Channel) -> None:
    """Candidate 0 is the mean; the same seed gives the same pool in any stream and iteration."""
    stub = DiagnosticServiceStub(channel)

    def plan(*messages: PlanRequest) -> list[PlanResponse]:
        return list(stub.Plan(iter(messages), timeout=GENEROUS_SECONDS))

    larger = planning.proposed(2, candidates=planning.CANDIDATES + 5)
    other = planning.proposed(3, seed=7)
    _, *answers = plan(planning.start(), planning.proposed(1), larger, other)
    again = plan(planning.start(), planning.proposed(9))[1]
    first, more, different = (planning.array(answer.certificate.candidates) for answer in answers)
    assert first.shape == (planning.CANDIDATES, planning.HORIZON, wire.WIDTH)
    assert (first[0] == 0.5).all()
    assert np.array_equal(planning.array(again.certificate.candidates), first)
    assert np.array_equal(more[: planning.CANDIDATES], first)
    assert not np.array_equal(different[1:], first[1:])
    assert abs(((more[1:] - 0.5) / 2).mean()) < 0.2
    _, sent_back = plan(planning.start(), planning.explicit(first))
    assert not sent_back.certificate.HasField("candidates"), "the planner has them"
    alone = planning.certify(candidates=wire.tensor(first))
    certified = stub.CertifyPool(alone, timeout=GENEROUS_SECONDS)
    assert certified.receipt == answers[0].certificate.certificate.receipt
