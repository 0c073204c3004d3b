"""Pools whose predictions are not held at once are answered as if they were."""

from collections.abc import Callable
from dataclasses import astuple, replace
from functools import partial

import numpy as np
import pytest
import torch
from acpc.arrays import NDArray
from acpc.contract import (
    CandidatePool,
    CemBudget,
    DistanceTerm,
    GaussianNoise,
    Identity,
    Norm,
    Objective,
    PlanStart,
    PoolCertificate,
)
from acpc_server.engine import DeviceClient
from acpc_server.engine.sizes import CPU
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.interactive import PairedCem, check_budget
from acpc_server.interactive.pieces import choices_of, join_costs, join_measures, measure
from planning_world import (
    DIM,
    PlanningWorld,
    certify_pool,
    context,
    drawn,
    moment,
    noise,
    pair,
    pool,
)
from shared_call import calls, together
from waiting import GENEROUS_SECONDS

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


LATENT = 4 * DIM  # bytes
MOMENT = moment(views=noise(0.1))


@pytest.mark.parametrize(
    ("ask", "latents", "field"),
    [
        pytest.param(
            lambda world: certify_pool(world.prepare(MOMENT), pool(), context()),
            9, "perturbations.draws", id="views",  # (1 + 2) 3 + 1
        ),
        pytest.param(
            lambda world: check_budget(world.prepare(MOMENT), CemBudget(8, 3, 2, 9)),
            17, "budget.horizon", id="horizon",
        ),
        pytest.param(
            lambda world: world.compare(
                pair(steps=6, views=drawn(Identity(), GaussianNoise(0.1), draws=3))
            ),
            14, "perturbations.draws", id="pair",
        ),
        pytest.param(
            lambda world: world.compare(pair(steps=20, views=noise(0.1, draws=1))),
            39, "action_blocks.shape", id="pair-horizon",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_rejected_before_any_work(
    world: PlanningWorld, monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[PlanningWorld], object], latents: int, field: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(world.engine, "max_latents", latents * LATENT)
    before = calls(world.engine, "encode")
    with pytest.raises(InvalidArgument) as caught:
        ask(world)
    assert (caught.value.field, caught.value.reason) == (field, "TOO_MANY_LATENTS")
    limit = f"over the limit of {latents * LATENT}; ask for fewer"
    assert limit in caught.value.description
    assert f"{(latents + 1) * LATENT} bytes" in caught.value.description
    assert calls(world.engine, "encode") == before


def test_merged_pairs_in_pieces_are_the_same_pairs(
    world: PlanningWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces begin and end within pairs and between them; pairs alike but for their futures."""
    specs = Identity(), GaussianNoise(0.1), GaussianNoise(0.02)
    blocks = pair().action_blocks
    requests = [
        pair(seed, future=True, action_blocks=blocks, views=drawn(*specs, draws=1 + seed % 3))
        for seed in range(4)
    ]
    other = 255 - requests[1].history
    requests.append(pair(1, action_blocks=blocks, views=requests[1].views, observed_future=other))
    asks = [partial(world.compare, one) for one in requests]
    alone = [ask(context()) for ask in asks]
    monkeypatch.setattr("acpc_server.engine.sizes.MIN_ROLLOUTS", 1)
    for rows in (1, 2, 3, 4, 7):
        monkeypatch.setattr("acpc_server.engine.sizes.HELD_LATENTS", rows * 5 * DIM)
        for one, future in zip(alone, together(world.engine, asks), strict=True):
            found = future.result(GENEROUS_SECONDS)
            for wanted, result in zip(one.results, found.results, strict=True):
                for name in ("step_distances", "acpc", "encoder_shift"):
                    assert getattr(result, name) == pytest.approx(getattr(wanted, name), rel=1e-4)
                np.testing.assert_allclose(
                    astuple(result.error_drift), astuple(wanted.error_drift), rtol=1e-3, atol=1e-4
                )
            unchanged = found.results[0]
            assert (unchanged.acpc, unchanged.error_drift.drift) == (0.0, 0.0)
