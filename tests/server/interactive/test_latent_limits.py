"""Requests whose latents would not fit are rejected before anything is computed; pairs are cut."""

from collections.abc import Callable
from dataclasses import astuple, replace
from functools import partial

import numpy as np
import pytest
from acpc.contract import (
    CemBudget,
    GaussianNoise,
    Identity,
    PairComparison,
    PairRequest,
)
from acpc_server.errors import InvalidArgument
from acpc_server.interactive import Planner, check_budget
from planning_world import (
    DIM,
    WIDTH,
    PlanningWorld,
    certify_pool,
    context,
    drawn,
    moment,
    noise,
    pool,
)
from shared_call import calls, together
from waiting import GENEROUS_SECONDS

LATENT = 4 * DIM  # bytes


def compare(world: PlanningWorld, steps: int = 3, **changed: object) -> PairComparison:
    asked = moment(views=drawn(Identity(), GaussianNoise(0.1), draws=3))
    request = PairRequest(
        checkpoint=asked.checkpoint,
        history=asked.history,
        action_blocks=np.random.default_rng(5).standard_normal((2 + steps, WIDTH), np.float32),
        views=asked.views,
        observed_future=asked.history[:steps] if steps == 3 else None,
    )
    return world.compare(replace(request, **changed))


def certify(world: PlanningWorld, **changed: object) -> None:
    planner = Planner(world.engine, max_frames=1000, max_predictions=100_000)
    session = planner.prepare(world.checkpoint(), moment(views=noise(0.1), **changed))
    certify_pool(session, pool(), context())


def plan(world: PlanningWorld) -> None:
    planner = Planner(world.engine, max_frames=1000, max_predictions=100_000)
    session = planner.prepare(world.checkpoint(), moment(views=noise(0.1)))
    check_budget(session, CemBudget(8, 3, 2, 9))


@pytest.mark.parametrize(
    ("ask", "latents", "field"),
    [
        pytest.param(certify, 9, "perturbations.draws", id="views"),  # (1 + 2) 3 + 1
        pytest.param(plan, 17, "budget.horizon", id="horizon"),
        pytest.param(lambda world: compare(world, 6), 14, "perturbations.draws", id="pair"),
        pytest.param(
            lambda world: compare(world, 20, views=noise(0.1, draws=1)),
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
    assert caught.value.field == field
    assert caught.value.reason == "TOO_MANY_LATENTS"
    limit = f"over the limit of {latents * LATENT}; ask for fewer"
    assert limit in caught.value.description
    assert f"{(latents + 1) * LATENT} bytes" in caught.value.description
    assert calls(world.engine, "encode") == before


def test_merged_pairs_in_pieces_are_the_same_pairs(
    world: PlanningWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces begin and end within pairs and between them; pairs alike but for their futures."""
    specs = Identity(), GaussianNoise(0.1), GaussianNoise(0.02)
    asked = [moment(seed, views=drawn(*specs, draws=1 + seed % 3)) for seed in range(4)]
    futures = [np.roll(one.history, place, axis=0) for place, one in enumerate(asked)]
    asked.append(asked[1])
    futures.append(255 - asked[1].history)
    blocks = np.random.default_rng(5).standard_normal((5, WIDTH), np.float32)
    requests = [
        PairRequest(
            checkpoint=one.checkpoint,
            history=one.history,
            action_blocks=blocks,
            views=one.views,
            observed_future=future,
        )
        for one, future in zip(asked, futures, strict=True)
    ]
    asks = [partial(world.compare, one) for one in requests]
    alone = [ask(context()) for ask in asks]
    monkeypatch.setattr("acpc_server.engine.sizes.MIN_ROLLOUTS", 1)
    for rows in (1, 2, 3, 4, 7):
        monkeypatch.setattr("acpc_server.engine.sizes.HELD_LATENTS", rows * 5 * DIM)
        for one, future in zip(alone, together(world.engine, asks), strict=True):
            found = future.result(GENEROUS_SECONDS)
            for wanted, result in zip(one.results, found.results, strict=True):
                assert result.step_distances == pytest.approx(wanted.step_distances, rel=1e-4)
                assert result.acpc == pytest.approx(wanted.acpc, rel=1e-4)
                assert result.encoder_shift == pytest.approx(wanted.encoder_shift, rel=1e-4)
                assert result.error_drift is not None
                assert wanted.error_drift is not None
                assert astuple(result.error_drift) == pytest.approx(
                    astuple(wanted.error_drift), rel=1e-3, abs=1e-4
                )
            unchanged = found.results[0]
            assert (unchanged.acpc, unchanged.error_drift.drift) == (0.0, 0.0)
