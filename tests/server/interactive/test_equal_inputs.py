"""Equal inputs have equal answers, bit for bit, wherever they stand and on any thread count."""

from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import numpy_reference as metrics
import pytest
import torch
from acpc.contract import (
    GRADED,
    GaussianNoise,
    Identity,
    Registered,
    ViewCertificate,
    VisualChange,
    example,
    parse,
    unchanged,
)
from acpc_server.engine import equal_rows
from acpc_server.interactive.paired_cem import CemBudget, PairedCem
from acpc_server.perturb import perturbation
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_world import PlanningWorld, certify_pool, context, drawn, moment, pair, pool
from pydantic import BaseModel

UNCHANGING: list[VisualChange] = [
    *(unchanged(parse(example(cls))) for cls in GRADED.values()), Identity(),
    Registered(name="test_untouched"),
]  # fmt: skip


class Nothing(BaseModel):
    """No parameters."""


@perturbation("test_untouched", parameters=Nothing, stochastic=True)
def untouched(frames: torch.Tensor, parameters: Nothing, key: np.random.Generator) -> torch.Tensor:
    """A plug-in that says it is random and changes nothing: only its frames tell."""
    return frames.clone()


@pytest.fixture(scope="module", params=[1, 2])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlanningWorld]:
    opened = PlanningWorld(tmp_path_factory.mktemp("checkpoints"), threads=request.param)
    yield opened
    opened.engine.close()


def same_numbers(one: ViewCertificate, two: ViewCertificate) -> bool:
    pairs = [(getattr(one, f.name), getattr(two, f.name)) for f in fields(one) if f.name != "draw"]
    return all(np.array_equal(a, b) for a, b in pairs)


@given(st.lists(st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.0]), min_size=2, max_size=2)))
def test_equal_rows_are_found_with_their_first(rows: list[list[float]]) -> None:
    table = torch.tensor(rows).reshape(-1, 2)
    wanted = [rows.index(row) for row in rows]  # a list's 0.0 equals its -0.0
    found = equal_rows(table[:, :1], table[:, 1:])
    if found is None:
        assert wanted == list(range(len(rows)))
    else:
        assert found.tolist() == wanted


@settings(max_examples=10, deadline=None)
@given(places=st.lists(st.integers(0, 6), min_size=6, max_size=40), seed=st.integers(0, 3))
def test_equal_candidates_have_equal_answers(
    world: PlanningWorld, places: list[int], seed: int
) -> None:
    """Costs, bounds and ACPC agree bit for bit; the first wins, and copies are one choice."""
    places = [*places, 7, 8]  # more candidates than elites, however often one is repeated
    candidates = pool(seed, candidates=9)[places]
    request = moment(seed, views=drawn(Identity(), GaussianNoise(sigma=0.05)))
    answer = certify_pool(world.open(request), candidates, context())
    first = np.array([places.index(place) for place in places])
    costs = answer.clean_costs.tolist()
    assert costs == answer.clean_costs[first].tolist()
    assert list(answer.clean_elites) == metrics.elites(costs, 4)
    assert answer.clean_winner == answer.clean_elites[0] == first[answer.clean_winner]
    assert answer.distinct_candidates == len({*places})
    for view in answer.views:
        for name in ("perturbed_costs", "displacements", "bounds", "chained_bounds", "acpc",
                     "acpc_one_step"):  # fmt: skip
            values = getattr(view, name)
            assert np.array_equal(values, values[first]), name
        assert view.perturbed_winner == first[view.perturbed_winner]
        assert view.elite is not None
        for k, found in ((1, view.top1), (4, view.elite)):
            elites, bounds = metrics.elites(costs, k), view.bounds
            apart = [
                costs[j] - costs[i] - bounds[j] - bounds[i]
                for i in elites
                for j in {*range(len(costs))} - {*elites}
                if places[i] != places[j]
            ]
            assert found.margin <= min(apart) + 1e-12 * max(costs)
            assert found.certified or min(apart) < 1e-12 * max(costs)
    for view in answer.views[:2]:
        assert view.perturbed_costs.tolist() == costs
        assert not view.displacements.any()
        assert not view.acpc.any()


@settings(max_examples=5, deadline=None)
@given(order=st.lists(st.integers(0, 2), min_size=1, max_size=12), together=st.booleans())
def test_equal_views_have_equal_certificates(
    world: PlanningWorld, order: list[int], together: bool
) -> None:
    """A caller's own views, one of them the history itself, in one device call or in many."""
    history = moment().history
    frames = [history, 255 - history, np.roll(history, 3, axis=2)]
    session = world.open(moment(views=np.stack([frames[place] for place in order])))
    with pytest.MonkeyPatch.context() as patch:
        if not together:
            patch.setattr("acpc_server.interactive.pieces.GROUP_STEPS", 1)
        answer = certify_pool(session, pool(), context())
        plans = PairedCem(session, CemBudget(8, 3, 2, 2), 0, "mean").run(context())
    for place, view, plan in zip(order, answer.views, plans.views, strict=True):
        assert same_numbers(view, answer.views[order.index(place)])
        assert np.array_equal(plan.perturbed_plan, plans.views[order.index(place)].perturbed_plan)
        assert plan.iterations == plans.views[order.index(place)].iterations
        if place == 0:
            assert view.perturbed_costs.tolist() == answer.clean_costs.tolist()
            assert not view.acpc.any()
            assert np.array_equal(plan.perturbed_plan, plans.clean_plan)
            assert plan.selection_regret == 0
            assert all(i.same_elites and i.acpc_q90 == 0 for i in plan.iterations)


@settings(max_examples=6, deadline=None)
@given(
    unchanging=st.lists(st.sampled_from(UNCHANGING), min_size=1, max_size=4),
    others=st.integers(0, 3),
    draws=st.integers(1, 3),
)
def test_an_unchanged_view_lies_at_distance_zero(
    world: PlanningWorld, unchanging: list[VisualChange], others: int, draws: int
) -> None:
    specs = [GaussianNoise(sigma=0.1 * (i + 1)) for i in range(others)]
    request = pair(1, steps=4, future=True, views=drawn(*specs, *unchanging, draws=draws))
    for _ in range(2):  # the second time, latents that were kept may serve
        answer = world.compare(request)
        for result in answer.results:
            changed = result.spec_index < others
            assert (result.acpc > 0) is (result.encoder_shift > 0) is changed
            assert changed or not any(result.step_distances)
            assert changed or (result.error_drift is not None and result.error_drift.drift == 0)
