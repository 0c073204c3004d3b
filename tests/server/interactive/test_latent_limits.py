"""Requests whose latents would not fit are rejected before anything is computed; pairs are cut."""

from collections.abc import Callable
from dataclasses import astuple
from functools import partial

import numpy as np
import pytest
from acpc.contract import CemBudget, GaussianNoise, Identity
from acpc_server.errors import InvalidArgument
from acpc_server.interactive import check_budget
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
