"""Requests whose latents would not fit are rejected before anything is computed; pairs are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from acpc.contract import (
    CemBudget,
    CoverageGoal,
    GaussianNoise,
    Identity,
    PairComparison,
    PairRequest,
)
from acpc_server.engine import DeviceEngine
from acpc_server.errors import InvalidArgument
from acpc_server.interactive import PairComparer, PairedCem, Planner, certify_pool
from planning_world import DIM, WIDTH, PlanningWorld, context, drawn, moment, noise, pool
from shared_call import calls

LATENT = 4 * DIM  # bytes


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanningWorld]:
    opened = PlanningWorld(tmp_path_factory.mktemp("checkpoints"))
    yield opened
    opened.engine.close()


def compare(world: PlanningWorld, steps: int = 3, **changed: object) -> PairComparison:
    asked = moment(views=drawn(Identity(), GaussianNoise(0.1), draws=3))
    request = PairRequest(
        checkpoint=asked.checkpoint,
        history=asked.history,
        action_blocks=np.random.default_rng(5).standard_normal((2 + steps, WIDTH), np.float32),
        views=asked.views,
        observed_future=asked.history[:steps] if steps == 3 else None,
    )
    comparer = PairComparer(world.engine, max_frames=1000)
    return comparer.compare(world.checkpoint(), replace(request, **changed), context())


def certify(world: PlanningWorld, **changed: object) -> None:
    planner = Planner(world.engine, max_frames=1000, max_predictions=100_000)
    session = planner.prepare(world.checkpoint(), moment(views=noise(0.1), **changed))
    certify_pool(session, pool(), context())


def plan(world: PlanningWorld) -> None:
    planner = Planner(world.engine, max_frames=1000, max_predictions=100_000)
    session = planner.prepare(world.checkpoint(), moment(views=noise(0.1)))
    PairedCem(session, CemBudget(8, 3, 2, 9), 0, "mean")


@pytest.mark.parametrize(
    ("ask", "latents", "field"),
    [
        pytest.param(certify, 9, "perturbations.draws", id="views"),  # (1 + 2) 3 + 1
        pytest.param(plan, 17, "budget.horizon", id="horizon"),
        pytest.param(
            lambda world: certify(world, coverage_goal=CoverageGoal(max_draws=200)),
            15, "candidates.shape", id="coverage",
        ),
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
    limit = f"over the limit of {latents * LATENT} (--max-latents-mib); ask for fewer"
    assert limit in caught.value.description
    assert f"{(latents + 1) * LATENT} bytes" in caught.value.description
    assert calls(world.engine, "encode") == before


def test_a_pair_in_pieces_is_the_same_pair(
    world: PlanningWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five distinct rows, two at a time, with error drift; an unchanged view stays at zero."""
    whole = compare(world)
    held: list[int] = []
    rollout = DeviceEngine.rollout

    def watched(*given: object) -> torch.Tensor:
        found: torch.Tensor = rollout(*given)  # type: ignore[arg-type]
        held.append(len(found))
        return found

    monkeypatch.setattr(DeviceEngine, "rollout", watched)
    monkeypatch.setattr("acpc_server.engine.sizes.HELD_LATENTS", 2 * 5 * DIM)
    monkeypatch.setattr("acpc_server.engine.sizes.MIN_ROLLOUTS", 1)
    cut = compare(world)
    assert held == [2, 2, 1]
    assert len(cut.results) == len(whole.results)
    for one, other in zip(cut.results, whole.results, strict=True):
        assert one.step_distances == pytest.approx(other.step_distances, rel=1e-4)
        assert one.encoder_shift == pytest.approx(other.encoder_shift, rel=1e-6)
        assert one.error_drift is not None
        assert other.error_drift is not None
        assert one.error_drift.drift == pytest.approx(other.error_drift.drift, rel=1e-2, abs=1e-4)
    assert [one.acpc for one in cut.results[:3]] == [0.0, 0.0, 0.0]
