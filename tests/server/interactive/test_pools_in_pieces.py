"""Pools whose predictions are not held at once are answered as if they were."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from acpc.arrays import NDArray
from acpc.contract import (
    CandidatePool,
    CemBudget,
    DistanceTerm,
    Norm,
    Objective,
    PlanStart,
    PoolCertificate,
)
from acpc_server.engine import DeviceClient
from acpc_server.engine.sizes import CPU
from acpc_server.errors import FailedPrecondition
from acpc_server.interactive import PairedCem
from acpc_server.interactive.pieces import (
    choices_of,
    join_costs,
    join_measures,
    measure,
)
from planning_world import DIM, PlanningWorld, certify_pool, context, moment, noise, pool

CALL, CANDIDATES, HORIZON = 28, 16, 3
SUMS = Objective((DistanceTerm(Norm.L1, squared=False, step_weights=(0.2, 0.3, 0.5)),), (0.1,))
SAID = CandidatePool(
    candidates=pool(), infeasible=(3, 9), offsets=np.linspace(0, 1, CANDIDATES, dtype=np.float32)
)
VIEWS = noise(1e-4, 1e-2, 0.08)  # six: with the clean history a call takes four candidates
Hold = Callable[[int], None]


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Hold:
    """Calls of 28 rows; sets how many rollouts are held."""
    monkeypatch.setattr("acpc_server.engine.sizes.POOL_ROWS", {CPU: CALL})

    def setter(rows: int) -> None:
        monkeypatch.setattr("acpc_server.engine.sizes.HELD_LATENTS", rows * HORIZON * DIM)

    return setter


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Coordinates of the predictions that came back at a time."""
    sizes: list[int] = []
    rollout_pool = DeviceClient.rollout_pool

    def watched(*given: object) -> torch.Tensor:
        found: torch.Tensor = rollout_pool(*given)
        sizes.append(found.numel())
        return found

    monkeypatch.setattr(DeviceClient, "rollout_pool", watched)
    return sizes


def certified(
    world: PlanningWorld, request: PlanStart, candidates: NDArray[np.float32],
    said: CandidatePool | None = None,
) -> PoolCertificate:  # fmt: skip
    return replace(certify_pool(world.open(request), candidates, context(), said), timing=None)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param({}, None, id="endpoints"),
        pytest.param({"objective": SUMS, "temperature": 0.5}, None, id="objective"),
        pytest.param({}, SAID, id="said"),
        pytest.param({"endpoint_tolerance": 0.1, "kept_elites": 2}, None, id="tolerance"),
    ],
)
def test_a_certificate_has_the_same_bits(
    world: PlanningWorld, hold: Hold, held: list[int], changed: dict[str, object],
    said: CandidatePool | None,
) -> None:  # fmt: skip
    request = moment(views=VIEWS, **changed)
    whole = certified(world, request, pool(), said)
    assert max(held) == 7 * CANDIDATES * HORIZON * DIM
    held.clear()
    hold(CALL)
    assert certified(world, request, pool(), said) == whole
    assert max(held) == CALL * HORIZON * DIM


def test_views_and_candidates_are_both_cut(
    world: PlanningWorld, hold: Hold, held: list[int]
) -> None:
    """Also where not all views fit with one candidate; numbers agree as float32 rollouts do."""
    whole = certified(world, moment(views=VIEWS), pool())
    held.clear()
    hold(2)
    cut = certified(world, moment(views=VIEWS), pool())
    assert max(held) == 2 * HORIZON * DIM
    for one, other in zip(whole.views, cut.views, strict=True):
        np.testing.assert_allclose(other.perturbed_costs, one.perturbed_costs, rtol=1e-4)
        np.testing.assert_allclose(other.acpc, one.acpc, rtol=1e-2, atol=1e-5)


def test_copies_with_other_offsets_are_other_choices_in_whichever_piece(
    world: PlanningWorld, hold: Hold
) -> None:
    """Each keeps its own cost; a mark makes another choice, too."""
    hold(CALL)
    offsets = np.repeat(np.float32([0, 5]), 8)
    said = CandidatePool(candidates=pool()[[*range(8)] * 2], offsets=offsets, infeasible=(8,))
    answer = certified(world, moment(views=VIEWS), said.candidates, said)
    lifted = answer.clean_costs[9:] - answer.clean_costs[1:8]
    np.testing.assert_allclose(lifted, 5, rtol=1e-5)
    assert answer.clean_costs[8] == np.inf
    assert answer.distinct_candidates == 16


def test_equal_candidates_have_the_answer_of_the_first_piece(world: PlanningWorld) -> None:
    """Also where their predictions differ in last bits, or here in all of them."""
    session, pieces = world.open(moment(views=noise(0.1))), [slice(0, 2), slice(2, 4)]
    rows = choices_of(torch.from_numpy(pool()[[0, 1, 0, 2]]))
    assert rows.tolist() == [0, 1, 0, 3]
    costs = torch.arange(4.0, dtype=torch.float64)
    assert join_costs([costs[each] for each in pieces], rows).tolist() == [0, 1, 0, 3]
    latents = torch.from_numpy(np.random.default_rng(0).standard_normal((3, 4, HORIZON, DIM), "f4"))
    whole, *parts = (
        measure(session, None, latents[0, x], latents[1:, x], session.goals)
        for x in (slice(None), *pieces)
    )
    joined = join_measures(parts, rows)
    assert torch.equal(joined.steps, whole.steps[:, rows])
    assert torch.equal(joined.bounds.bounds, whole.bounds.bounds[..., rows])


@pytest.mark.parametrize("where", ["view", "candidate"])
def test_a_prediction_that_is_not_finite_is_told_of_in_whichever_piece(
    world: PlanningWorld, hold: Hold, where: str
) -> None:
    session, candidates = world.open(moment(views=VIEWS)), pool()[:6]
    if where == "view":
        session.views[0] = torch.inf
    else:
        candidates[-1] = 3e38
    hold(2)  # the first group of views, or the last piece
    with pytest.raises(FailedPrecondition):
        certify_pool(session, candidates, context())


def test_paired_plans(world: PlanningWorld, hold: Hold, held: list[int]) -> None:
    """The largest part is one iteration's piece: nothing is kept of the iterations before."""
    budget = CemBudget(CANDIDATES, 4, 3, HORIZON)
    whole, cut = [], []
    for found in (whole, cut):
        held.clear()
        session = world.open(moment(views=VIEWS))
        found.append(PairedCem(session, budget, 0, "mean").run(context()))
        hold(CALL)
    assert max(held) <= CALL * HORIZON * DIM
    np.testing.assert_allclose(cut[0].clean_plan, whole[0].clean_plan, rtol=1e-4, atol=1e-5)
    for one, other in zip(whole[0].views, cut[0].views, strict=True):
        np.testing.assert_allclose(other.perturbed_plan, one.perturbed_plan, rtol=1e-3, atol=1e-4)
        assert [x.same_elites for x in one.iterations] == [x.same_elites for x in other.iterations]
        assert all(x.bound_violations == 0 for x in other.iterations)
