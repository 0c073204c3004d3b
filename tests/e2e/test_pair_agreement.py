"""ComparePair over the wire against float64 NumPy, from uint8 frames to distances."""

import numpy as np
import pair_reference
import pixel_reference as pixels
import pytest
import wire
from acpc.contract import GRADED, Jpeg, Perturbation, example, parse
from acpc_client import PairComparison
from acpc_client.sync.client import AcpcClient
from pair_reference import ReferencePair
from served_world import ServedWorld

# Float32 network against float64; the largest seen is printed and is near 1e-5. Latents are about
# 8 long, so that float32 leaves a few millionths of any distance.
TOLERANCE, FLOOR = 1e-4, 4e-6
KINDS = [cls for kind, cls in GRADED.items() if kind != "jpeg"]
SHIFTS: tuple[Perturbation, ...] = (
    *(parse(example(cls)) for cls in KINDS),
    *map(parse, ("identity", "gaussian_blur:4", "motion_blur:5@30")),
    parse("gaussian_noise:0.05+gamma:1.4+knocked_camera:3"),
)
# Rounds to bytes: what float32 and float64 leave beside a half may go either way, and a resize
# leaves such values.
UNRESIZED = (*SHIFTS, Jpeg(30))
SEED, ANCHOR, DRAWS = 2**64 - 1, 17, 2


def worst(answer: PairComparison, wanted: list[ReferencePair]) -> float:
    """Largest relative error above the floor of rounding; exact zeros must be zeros."""
    found, expected = [], []
    for result, reference in zip(answer.results, wanted, strict=True):
        for values, side in ((found, result), (expected, reference)):
            values += [side.acpc, side.acpc_one_step, side.encoder_shift, *side.step_distances]
        drift = result.error_drift
        assert (drift is None) == (reference.clean_error is None)
        if drift is not None:
            found += [drift.clean_error, drift.perturbed_error]
            expected += [reference.clean_error, reference.perturbed_error]
            assert drift.bound == pytest.approx(result.acpc, rel=1e-9)
            assert drift.drift == abs(drift.perturbed_error - drift.clean_error) <= drift.bound
    pairs = zip(found, expected, strict=True)
    gaps = [max(0.0, abs(a - b) - FLOOR) / b if b else float(a != 0) for a, b in pairs]
    assert all(np.isfinite(gaps))
    return max(gaps)


def shown(label: str, error: float) -> None:
    print(f"{label}: largest relative error {error:.2e}")
    assert error <= TOLERANCE


@pytest.mark.parametrize(
    ("name", "frame"), [("lewm", (28, 28)), ("pldm", (36, 45)), ("lewm", (9, 7))], ids=str
)
def test_every_shift(
    client: AcpcClient, world: ServedWorld, name: str, frame: tuple[int, int]
) -> None:
    """Every kind there is, on frames with and without a resize to the model's size."""
    height, width = frame
    shifts = UNRESIZED if frame == (28, 28) else SHIFTS
    history = wire.frames(wire.HISTORY, height=height, width=width)
    future = wire.frames(wire.HORIZON, height=height, width=width, seed=9)
    asked = {"draws": DRAWS, "seed": SEED, "anchor": ANCHOR, "observed_future": future}
    answer = client.compare_pair(name, history, wire.blocks(), perturbations=shifts, **asked)
    model = world.reference(name)
    images = pixels.model_input(history, model.image_size)
    views = [
        pair_reference.perturbed(images, shift.to_spec(), seed=SEED, anchor=ANCHOR, draw=draw)
        for shift in shifts
        for draw in range(DRAWS)
    ]
    wanted = pair_reference.compare(model, history, wire.blocks(), views, future=future)
    assert [(r.spec_index, r.draw) for r in answer.results] == [
        (spec, draw) for spec in range(len(shifts)) for draw in range(DRAWS)
    ]
    shown(f"{name} {height}x{width}", worst(answer, wanted))


@pytest.mark.parametrize(("name", "frames"), [("lewm", 1), ("pldm", 2), ("lewm", 3)])
def test_explicit_views_and_weights(
    client: AcpcClient, world: ServedWorld, name: str, frames: int
) -> None:
    """Histories of every length, views of the caller's own, weights with a zero among them."""
    weights = [0.0, 0.5, 0.3, 0.2]
    history = wire.frames(frames)
    blocks = wire.blocks(frames + len(weights) - 1)
    views = wire.frames(5 * frames, seed=3).reshape(5, frames, *history.shape[1:])
    answer = client.compare_pair(name, history, blocks, views=views, weights=weights)
    model = world.reference(name)
    images = [pixels.model_input(view, model.image_size) for view in views]
    wanted = pair_reference.compare(model, history, blocks, images, weights=weights)
    shown(f"{name} history {frames}", worst(answer, wanted))


def test_float_views_need_not_be_whole_levels(client: AcpcClient, world: ServedWorld) -> None:
    history = wire.frames(3)
    whole = wire.frames(6, seed=3).reshape(2, *history.shape)
    between = np.random.default_rng(4).random(whole.shape, np.float32)
    views = np.concatenate([history[None] / np.float32(255), whole / np.float32(255), between])
    answer = client.compare_pair("lewm", history, wire.blocks(), views=views)
    of_bytes = client.compare_pair("lewm", history, wire.blocks(), views=whole)
    assert answer.results[0].acpc == 0
    for found, same in zip(answer.results[1:3], of_bytes.results, strict=True):
        assert found.acpc == pytest.approx(same.acpc, rel=1e-5)
    model = world.reference("lewm")
    images = [pixels.model_input(view * 255.0, model.image_size) for view in views[1:]]
    wanted = pair_reference.compare(model, history, wire.blocks(), images)
    for found, exact in zip(answer.results[1:], wanted, strict=True):
        assert found.acpc == pytest.approx(exact.acpc, rel=TOLERANCE)


def test_a_small_shift_keeps_its_digits(client: AcpcClient, world: ServedWorld) -> None:
    """One grey level in one pixel: the difference of two float32 rollouts is all that is left.

    Cancellation costs digits here, so the bound is on the error against the size of the latents.
    """
    history = wire.frames(3)
    view = history.copy()
    view[1, 14, 14, 0] ^= 1
    answer = client.compare_pair("lewm", history, wire.blocks(), views=view[None])
    model = world.reference("lewm")
    images = pixels.model_input(view, model.image_size)
    (wanted,) = pair_reference.compare(model, history, wire.blocks(), [images])
    size = np.linalg.norm(model.encode(pixels.model_input(history, model.image_size)))
    error = abs(answer.results[0].acpc - wanted.acpc) / float(size)
    print(f"one grey level: ACPC {wanted.acpc:.3e}, error over latent norm {error:.2e}")
    assert wanted.acpc > 0
    assert error <= 1e-6
