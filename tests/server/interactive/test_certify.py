"""CertifyPool's numbers against float64 loops, and what its certificates promise."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import numpy_reference as metrics
import pair_reference
import pixel_reference as pixels
import pytest
import torch
from acpc.arrays import NDArray
from acpc.contract import (
    ApplyTo,
    Brightness,
    CandidatePool,
    CleanGaps,
    CostReduction,
    GaussianNoise,
    MotionBlur,
    NumericMode,
    Objective,
    Perturbation,
    PlanStart,
    PoolCertificate,
    Resize,
)
from acpc.v1 import perturbation_pb2
from acpc_server.encoding import EncodedHistories, view_rows
from acpc_server.engine.graphs import AFTER
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.interactive.certificates import certified_severities
from graphed import Graphed
from hypothesis import given
from hypothesis import strategies as st
from planning_world import (
    PlanningWorld,
    certify,
    certify_pool,
    context,
    drawn,
    encoded,
    moment,
    noise,
    pool,
)

APPLIED = (ApplyTo.HISTORY, ApplyTo.GOAL, ApplyTo.BOTH)


def views_of(frames: np.ndarray, sigma: float, draws: int, seed: int) -> list[np.ndarray]:
    spec = perturbation_pb2.PerturbationSpec(gaussian_noise={"sigma": sigma})
    images = pixels.model_input(frames, frames.shape[1])
    return [
        pair_reference.perturbed(images, spec, seed=seed, anchor=5, draw=draw)
        for draw in range(draws)
    ]


@pytest.mark.parametrize(
    ("history", "apply_to"),
    [(1, ApplyTo.HISTORY), (2, ApplyTo.BOTH), (3, ApplyTo.HISTORY), (3, ApplyTo.GOAL)],
)
@pytest.mark.parametrize("mean", [False, True], ids=["sum", "mean"])
def test_every_number_is_the_papers(
    world: PlanningWorld, history: int, apply_to: ApplyTo, mean: bool
) -> None:
    """From uint8 frames to bounds, in float64 loops that share no code with the server."""
    weights = [0.2, 0.3, 0.5]
    request = moment(
        1, history, views=replace(noise(0.08, seed=1), apply_to=apply_to),
        cost_reduction=CostReduction.MEAN if mean else CostReduction.SUM,
        weights=tuple(weights),
    )  # fmt: skip
    candidates = pool(1, candidates=6)
    answer = world.certified(request, candidates)
    assert answer.receipt.parameters.get("apply_to", "history") == str(apply_to)
    model = world.reference()
    goal = encoded(model, request.goal[None])[0]

    def rollouts(latents: np.ndarray) -> np.ndarray:
        past = [] if request.past_blocks is None else [request.past_blocks]
        blocks = [np.concatenate([*past, c]).astype(np.float64) for c in candidates]
        return np.stack([model.rollout(latents, actions) for actions in blocks])

    clean = rollouts(encoded(model, request.history))
    seen = views_of(request.history, 0.08, 2, 1)
    aims = views_of(request.goal[None], 0.08, 2, 1 + 2**63)  # a goal's draws have their own seed
    for view, images, aim in zip(answer.views, seen, aims, strict=True):
        other = clean if apply_to is ApplyTo.GOAL else rollouts(model.encode(images))
        moved = goal if apply_to is ApplyTo.HISTORY else model.encode(aim)[0]
        expected = certify(clean, other, (goal, moved), mean=mean, weights=weights)
        for name in ("perturbed_costs", "displacements", "bounds", "chained_bounds",
                     "acpc_one_step", "acpc"):  # fmt: skip
            np.testing.assert_allclose(getattr(view, name), getattr(expected, name), rtol=3e-4)
        np.testing.assert_allclose(answer.clean_costs, expected.clean_costs, rtol=1e-4)
        assert view.acpc_q90 == pytest.approx(metrics.quantile(expected.acpc, 0.9), rel=3e-4)
        one = metrics.quantile(expected.acpc_one_step, 0.9)
        assert view.acpc_one_step_q90 == pytest.approx(one, rel=3e-4)
        scale = max(expected.clean_costs)
        for selection, count in ((view.top1, 1), (view.elite, 4)):
            margin = metrics.elite_margin(expected.clean_costs, expected.bounds, count)
            assert selection.margin == pytest.approx(margin, abs=1e-3 * scale)
            assert selection.certified == (selection.margin > 0)
        assert (view.chained_bounds >= view.bounds).all()
        assert 0 <= view.excess_cost <= view.excess_cost_bound
    assert list(answer.clean_elites) == metrics.elites(list(expected.clean_costs), 4)
    certified = [view.top1.certified for view in answer.views]
    assert answer.top1_certified_fraction == sum(certified) / len(certified)


def test_a_goal_that_moves_alone_takes_one_rollout(world: PlanningWorld) -> None:
    """Of each candidate, however many views there are; that is what a request may take."""
    views, steps = noise(0.01, 0.08, draws=3), pool().shape[0] * pool().shape[1]
    with pytest.raises(InvalidArgument, match="over the limit"):
        world.certified(moment(views=views), pool(), max_predictions=steps)
    moved = moment(views=replace(views, apply_to=ApplyTo.GOAL))
    answer = world.certified(moved, pool(), max_predictions=steps)
    for view in answer.views:
        assert (view.displacements == 0).all()
        assert (view.acpc == 0).all()
        assert (view.bounds > 0).all()


def test_the_goal_may_be_a_latent(world: PlanningWorld) -> None:
    request = moment()
    session = world.open(request)
    frame = certify_pool(session, pool(), context())
    latent = world.certified(moment(goal=session.goal.numpy()), pool())
    np.testing.assert_allclose(latent.clean_costs, frame.clean_costs, rtol=1e-6)
    assert latent.receipt.anchors_digest != frame.receipt.anchors_digest


def sent(count: int = 2) -> NDArray[np.uint8]:
    return np.random.default_rng(7).integers(0, 256, (count, 3, 28, 28, 3), np.uint8)


ORDINARY: dict[str, dict[str, Any]] = {
    "drawn views": {},
    "a view that is its history": {"views": drawn(GaussianNoise(sigma=1e-30), draws=2)},
    "sent views": {"views": sent()},
    "no elites, a tolerance": {"elite_count": 0, "endpoint_tolerance": 0.1},
    "kept elites, weights": {"kept_elites": 2, "weights": (0.5, 0.5, 0.0)},
    "a latent goal": {"goal": np.linspace(-1, 1, 16, dtype=np.float32)},
    "bfloat16": {"numeric_mode": NumericMode.BF16},
    "one candidate": {"elite_count": 0},
    "one frame": {"length": 1},
}


@pytest.mark.parametrize("kind", [*ORDINARY, "a plan"])
def test_a_pool_that_is_captured_whole_is_the_one_in_pieces(
    own_world: PlanningWorld, kind: str
) -> None:
    """First computed eagerly, then compared, then by the graph; all in one copy out."""
    device, engine = Graphed(), own_world.engine
    pools = [pool(seed, 1 if kind == "one candidate" else 16) for seed in range(AFTER + 2)]
    asked = [moment(seed, **ORDINARY.get(kind, {})) for seed in range(len(pools))]
    opened = [own_world.open(one) if kind == "a plan" else None for one in asked]

    def answers() -> list[PoolCertificate]:
        own = (plan or own_world.prepare(one) for plan, one in zip(opened, asked, strict=True))
        return [certify_pool(*one, context()) for one in zip(own, pools, strict=True)]

    wanted = answers()
    engine.owner.graphs = device.graphs
    found = answers()
    assert (device.captured, device.replayed) == (1, 2)
    assert [one.receipt.program for one in found] == [""] * (len(pools) - 1) + ["graph"]
    rounding = 5e-2 if kind == "bfloat16" else 2e-4
    for one, other in zip(found, wanted, strict=True):
        assert replace(one.receipt, program="") == replace(other.receipt, program="")
        scale = float(np.abs(other.clean_costs).max())
        np.testing.assert_allclose(one.clean_costs, other.clean_costs, atol=rounding * scale)
        for view, same in zip(one.views, other.views, strict=True):
            assert (view.spec_index, view.draw) == (same.spec_index, same.draw)
            for name in ("perturbed_costs", "bounds", "chained_bounds", "displacements", "acpc"):
                values = getattr(view, name), getattr(same, name)
                apart = rounding * max(
                    1.0, float(np.abs(values[1][np.isfinite(values[1])]).max(initial=0))
                )
                np.testing.assert_allclose(*values, atol=apart)
            for name in ("top1", "elite", "kept"):
                mine, theirs = getattr(view, name), getattr(same, name)
                assert (mine is None) is (theirs is None)
                if mine is not None:
                    assert mine.margin == pytest.approx(theirs.margin, abs=8 * rounding * scale)
                    assert mine.certified is (mine.margin > 0)
            assert 0 <= view.excess_cost <= view.excess_cost_bound
        if kind == "a view that is its history":
            assert all((view.bounds == 0).all() and view.top1.certified for view in one.views)


@pytest.mark.parametrize(
    ("changed", "candidates"),
    [
        ({"views": replace(noise(0.08), apply_to=ApplyTo.BOTH)}, pool()),
        ({"temperature": 1.0}, pool()),
        ({"objective": Objective(control_weights=(1.0,))}, pool()),
        ({"views": np.stack([*sent(1), *sent(1)])}, pool()),
        ({}, np.concatenate([pool(), pool()[:1]])),
        ({"numeric_mode": NumericMode.FP64}, pool()),
    ],
)
def test_what_is_no_ordinary_pool_is_computed_in_pieces(
    own_world: PlanningWorld, changed: dict[str, Any], candidates: NDArray[np.float32]
) -> None:
    """With the bits that it has elsewhere."""
    request = moment(**changed)
    wanted = certify_pool(own_world.prepare(request), candidates, context())
    own_world.engine.owner.graphs = Graphed().graphs
    found = certify_pool(own_world.prepare(request), candidates, context())
    assert found.to_message() == wanted.to_message()


@pytest.mark.parametrize("changed", [{}, {"endpoint_tolerance": 1e3}], ids=["", "tolerance"])
def test_copies_of_one_candidate_leave_no_choice(
    world: PlanningWorld, changed: dict[str, float]
) -> None:
    session = world.open(moment(views=noise(0.1), kept_elites=2, **changed))
    answer = certify_pool(session, pool()[[3] * 64], context())
    assert answer.distinct_candidates == 1
    assert answer.clean_gaps == CleanGaps(np.inf, np.inf)
    for view in answer.views:
        assert [view.top1.margin, view.elite.margin, view.kept.margin] == [np.inf] * 3
        assert (view.excess_cost, view.perturbed_winner) == (0, 0)


def test_a_pool_of_one_is_certified_and_has_no_elites(world: PlanningWorld) -> None:
    answer = world.certified(moment(elite_count=0), pool(candidates=1))
    assert answer.top1_certified_fraction == 1
    assert answer.elite_certified_fraction == 0
    assert answer.clean_elites == ()
    assert answer.clean_gaps == CleanGaps(top1=np.inf, elite=None)
    assert all(view.elite is None for view in answer.views)
    assert all(entry.elite is None for entry in answer.certified_severities)


def test_receipts_cover_every_parameter(world: PlanningWorld) -> None:
    """Anything that can change a number changes a digest, and nothing else does."""
    base = world.certified(moment(), pool()).receipt
    assert world.certified(moment(), pool()).receipt == base
    request = moment()
    assert request.past_blocks is not None
    changed = {
        "history": (moment(history=255 - request.history), pool()),
        "past_blocks": (moment(past_blocks=request.past_blocks + 1), pool()),
        "goal": (moment(goal=255 - request.goal), pool()),
        "candidates": (moment(), pool(1)),
        "views": (moment(views=noise(1e-4, 1e-2, 0.07)), pool()),
        "draws": (moment(views=noise(1e-4, 1e-2, 0.08, draws=3)), pool()),
        "seed": (moment(views=noise(1e-4, 1e-2, 0.08, seed=1)), pool()),
        **{str(x): (moment(views=replace(request.views, apply_to=x)), pool()) for x in APPLIED[1:]},
        "elite_count": (moment(elite_count=5), pool()),
        "reduction": (moment(cost_reduction=CostReduction.SUM), pool()),
        "tolerance": (moment(endpoint_tolerance=1e-3), pool()),
        "weights": (moment(weights=(0.5, 0.25, 0.25)), pool()),
    }
    receipts = [world.certified(*parts).receipt for parts in changed.values()]
    assert all(a != b for a, b in itertools.combinations([base, *receipts], 2))


@pytest.mark.parametrize(
    ("request_", "candidates", "field", "reason"),
    [
        (moment(), pool(candidates=4), "elite_count", "INVALID_FIELD"),
        (moment(), pool()[:, :, 1:], "candidates.shape", "INVALID_FIELD"),
        (moment(), pool(candidates=0), "candidates.shape", "INVALID_FIELD"),
        (moment(), pool(horizon=0), "candidates.shape", "INVALID_FIELD"),
        (moment(), pool(horizon=1025), "candidates.shape", "INVALID_FIELD"),
        (moment(weights=(0.5, 0.5)), pool(), "weights", "INVALID_FIELD"),
        (moment(), pool(candidates=5000), "candidates.shape", "TOO_MANY_PREDICTIONS"),
        (moment(), pool(candidates=200_000, horizon=1), "candidates.shape", "TOO_MANY_RESULTS"),
    ],
)
def test_pools_that_do_not_fit_are_refused(
    world: PlanningWorld, request_: PlanStart, candidates: np.ndarray, field: str, reason: str
) -> None:
    """Before they wait for the device: a call that was cancelled never comes to it."""
    session, cancelled = world.open(request_), context()
    cancelled.cancel()
    with pytest.raises(InvalidArgument) as caught:
        certify_pool(session, candidates, cancelled)
    assert (caught.value.field, caught.value.reason) == (field, reason)


def test_a_checkpoint_that_diverges_is_named_by_a_graph_too(own_world: PlanningWorld) -> None:
    own_world.engine.owner.graphs = Graphed().graphs
    far = np.float32(5e37) * pool(candidates=4)
    for _ in range(AFTER + 2):
        with pytest.raises(FailedPrecondition) as caught:
            certify_pool(own_world.prepare(moment(elite_count=0)), far, context())
        assert caught.value.reason == "PREDICTION_NOT_FINITE"


def test_predictions_whose_costs_no_number_holds_are_no_certificate(world: PlanningWorld) -> None:
    """In fp64 alone: float32 ends before."""
    session = world.open(moment())
    views = torch.full_like(session.views, 1e76, dtype=torch.float64)
    far = EncodedHistories(session.clean, views, session.goal[None])
    with pytest.raises(FailedPrecondition) as caught:
        session.asked.with_latents(far)
    assert caught.value.reason == "PREDICTION_NOT_FINITE"


def test_offsets_and_infeasible_candidates_choose_and_are_in_the_receipt(
    world: PlanningWorld,
) -> None:
    candidates, session = pool(), world.open(moment())
    plain = certify_pool(session, candidates, context())
    out = CandidatePool(candidates=candidates, infeasible=(plain.clean_winner,))
    without = certify_pool(session, candidates, context(), out)
    assert without.clean_costs[plain.clean_winner] == np.inf
    assert without.clean_winner == plain.clean_elites[1]
    lifted = np.zeros(len(candidates), np.float32)
    lifted[plain.clean_winner] = 100.0
    moved = CandidatePool(candidates=candidates, offsets=lifted)
    dearer = certify_pool(session, candidates, context(), moved)
    assert dearer.clean_winner == plain.clean_elites[1]
    digests = {a.receipt.anchors_digest for a in (plain, without, dearer)}
    assert len(digests) == 3


def test_updates_of_other_planners_are_answered(world: PlanningWorld) -> None:
    candidates = pool()
    request = moment(kept_elites=2, temperature=0.5)
    answer = world.certified(request, candidates)
    plain = world.certified(moment(), candidates)
    for view, same in zip(answer.views, plain.views, strict=True):
        assert view.top1 == same.top1
        assert view.elite == same.elite
        assert view.kept.margin <= view.elite.margin
        assert (view.softmax.lower <= answer.softmax_mean + 1e-9).all()
        assert (answer.softmax_mean <= view.softmax.upper + 1e-9).all()
        assert same.kept is None
        assert same.softmax is None
    assert {view.softmax.total_variation == 1 for view in answer.views if view.softmax} == {
        view.elite is not None and not view.elite.certified for view in plain.views
    }


def defined(draws: list[tuple[float, bool]]) -> float | None:
    """Largest s such that every draw of severity at most s is certified."""
    holds = [s for s, _ in draws if all(certified for other, certified in draws if other <= s)]
    return max(holds, default=None)


@given(st.data())
def test_every_milder_draw_counts(data: st.DataObject) -> None:
    kinds: list[list[Perturbation]] = [
        [GaussianNoise(sigma=s) for s in data.draw(st.lists(st.sampled_from([0.01, 0.02, 0.3])))],
        [Resize(scale=s) for s in data.draw(st.lists(st.sampled_from([1.0, 0.5, 0.25])))],
        [Brightness(change=c) for c in data.draw(st.lists(st.sampled_from([-0.3, -0.1, 0.1])))],
        [
            MotionBlur(length=length, angle=angle)
            for length, angle in data.draw(
                st.lists(st.sampled_from([(3.0, 0.0), (3.0, 90.0), (9.0, 0.0)]))
            )
        ],
    ]
    assert certified_severities(np.zeros((2, 1, 4, 4, 3), np.uint8), top1=[], elite=[]) == ()
    specs = data.draw(st.permutations([spec for kind in kinds for spec in kind]))
    views = drawn(*specs, draws=data.draw(st.integers(1, 3)))
    rows = view_rows(views)
    flags = st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))
    top1, elite = data.draw(flags), data.draw(flags)
    answers = certified_severities(views, top1=top1, elite=elite)
    assert [a.kind for a in answers] == list(dict.fromkeys(spec.kind for spec in specs))
    for answer in answers:
        for certified, found in ((top1, answer.top1), (elite, answer.elite)):
            draws = [
                (views.specs[view.spec_index].severity, flag)
                for (view, _), flag in zip(rows, certified, strict=True)
                if views.specs[view.spec_index].kind == answer.kind
            ]
            assert found == defined(draws)
