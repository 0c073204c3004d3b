"""What is encoded when a planning session moves on, and that it answers as a new one."""

from typing import Any

import numpy as np
import pytest
from acpc.contract import (
    Brightness,
    ColorJitter,
    Contrast,
    DefocusBlur,
    Gamma,
    GaussianBlur,
    Identity,
    Jpeg,
    MotionBlur,
    Occlusion,
    Perturbation,
    PerturbationSet,
    PlanFrame,
    PlanStart,
    RandomShift,
    Registered,
    Resize,
    Shadow,
    Views,
)
from acpc_server.interactive import EncodedMoment, Planner
from acpc_server.perturb import Draws, perturbation
from planning_world import SIDE, WIDTH, PlanningWorld, context, drawn, moment, noise
from pydantic import BaseModel
from torch import Tensor

RNG = np.random.default_rng(3)
DARK = np.zeros((1, SIDE, SIDE, 3), np.uint8)  # which no change of brightness changes
STEPS = [RNG.integers(0, 256, DARK.shape, np.uint8), DARK]
BLOCKS = RNG.standard_normal((2, 2, WIDTH), np.float32)
WINDOW, VIEW, GOAL = 3, 3, 1
BY_FRAME: list[Perturbation] = [
    GaussianBlur(kernel_size=5), Resize(scale=0.3), Brightness(change=-0.5), Contrast(change=-0.5),
    ColorJitter(strength=1.0), Jpeg(quality=10), Occlusion(size=0.5), RandomShift(pixels=11),
    DefocusBlur(radius=2.0), MotionBlur(length=5.0, angle=30.0), Shadow(strength=1.0),
    Gamma(exponent=3.0),
]  # fmt: skip


class Nothing(BaseModel):
    pass


@perturbation("test_fading", parameters=Nothing, stochastic=False)
def fading(frames: Tensor, parameters: Nothing, draws: Draws) -> Tensor:
    """Each frame greyer than the one before it: a plug-in that says nothing may do so."""
    return frames * frames.new_tensor([1.0, 0.6, 0.3])[: len(frames), None, None, None]


class MovedSessions:
    """A world that counts what each step encodes, without a cache: sessions hold what they have."""

    def __init__(self, world: PlanningWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.planner = Planner(self.world.engine, max_frames=1000, max_predictions=100_000)
        self.encoded: list[int] = []
        self._encode = self.world.engine.encode
        monkeypatch.setattr(self.world.engine.latents, "get", lambda _: {})
        monkeypatch.setattr(self.world.engine, "encode", self._counted)

    def _counted(self, model: Any, frames: Tensor, *rest: Any) -> Tensor:  # noqa: ANN401
        self.encoded[-1] += len(frames)
        return self._encode(model, frames, *rest)

    def steps(self, views: Views, own: np.ndarray | None = None) -> list[int]:
        """Frames encoded by a session and its moves, each of which is compared with a new one."""
        start = moment(views=views)
        self.encoded.append(0)
        session = self.world.open(start)
        for step, (frame, blocks) in enumerate(zip(STEPS, BLOCKS, strict=True), 1):
            shown = None if own is None else own[:, step : step + WINDOW]
            move = PlanFrame(history=frame, keep=2, past_blocks=blocks, explicit_views=shown)
            self.encoded.append(0)
            moved, start = self.planner.move(session, move), move.after(start)
            session = self.planner.encode(moved, context())
            assert (session.sources, session.tally) == (moved.sources, moved.tally)
            self._compare(session, start)
        return self.encoded

    def _compare(self, session: EncodedMoment, start: PlanStart) -> None:
        counted = self.encoded.pop()
        self.encoded.append(0)
        new = self.world.open(start)
        self.encoded[-1] = counted
        for name in ("clean", "views", "goal"):
            found, wanted = (getattr(one, name).numpy() for one in (session, new))
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
        assert session.view_rows == new.view_rows


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> PlanningWorld:
    return PlanningWorld(tmp_path_factory.mktemp("checkpoints"), threads=1)


@pytest.fixture
def sessions(world: PlanningWorld, monkeypatch: pytest.MonkeyPatch) -> MovedSessions:
    return MovedSessions(world, monkeypatch)


@pytest.mark.parametrize("spec", BY_FRAME, ids=lambda spec: spec.kind)
def test_of_a_view_that_sees_frames_alone_only_the_new_one_is_encoded(
    sessions: MovedSessions, spec: Perturbation
) -> None:
    assert sessions.steps(drawn(spec, draws=1)) == [WINDOW + VIEW + GOAL, 1 + 1, 1 + 1]


@pytest.mark.parametrize(
    "views",
    [noise(0.08, draws=1), drawn(Registered("test_fading", {}), draws=1)],
    ids=["noise", "plug-in"],
)
def test_a_view_that_tells_places_apart_is_encoded_anew(
    sessions: MovedSessions, views: PerturbationSet
) -> None:
    assert sessions.steps(views) == [WINDOW + VIEW + GOAL, 1 + VIEW, 1 + VIEW]


def test_kinds_of_both_sorts_and_several_draws_move_along(sessions: MovedSessions) -> None:
    noisy = noise(0.08).specs
    views = drawn(ColorJitter(strength=0.5), *noisy, Identity(), Brightness(change=0.3))
    jitters, noises, bright = 2, 2, 1
    first = WINDOW + VIEW * (jitters + noises + bright) + GOAL
    moved = 1 + jitters + VIEW * noises + bright
    assert sessions.steps(views) == [first, moved, moved]


def test_a_callers_own_views_are_kept_frame_by_frame(sessions: MovedSessions) -> None:
    own = RNG.integers(0, 256, (2, WINDOW + len(STEPS), SIDE, SIDE, 3), np.uint8)
    assert sessions.steps(own[:, :WINDOW], own) == [WINDOW + 2 * VIEW + GOAL, 1 + 2, 1 + 2]
