"""What a camera, its lens and the scene before it do, against float64 loops."""

import camera_reference as reference
import jpeg_reference
import numpy as np
import pair_reference
import pytest
import torch
from acpc.contract import (
    GRADED,
    Background,
    DefocusBlur,
    GaussianBlur,
    Jpeg,
    MotionBlur,
    Perturbation,
    RandomShift,
    VisualChange,
    examples_of,
    parse,
    to_plain,
)
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.pixels import to_model_input
from acpc_server.perturb import is_stochastic, perturb_frames

KEY = {"seed": 9101, "anchor": 3, "draw": 2}
PLATE = np.random.default_rng(3).integers(0, 256, (16, 20, 3), np.uint8)


def photos(count: int = 3) -> torch.Tensor:
    """Random frames before the plate, some of them near it."""
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (count, 16, 20, 3), np.uint8)
    near = rng.random(frames.shape[:3]) < 0.5
    noise = rng.integers(-40, 41, frames.shape)
    frames = np.where(near[..., None], (PLATE + noise).clip(0, 255), frames).astype(np.uint8)
    return to_model_input(torch.from_numpy(frames), 16)


def plated(strength: float, tolerance: float = 0.1, plate: np.ndarray = PLATE) -> Background:
    return Background(
        strength, tolerance=tolerance, plate=plate.tobytes(), plate_width=plate.shape[1]
    )


# Ends of ranges, and second parameters, beside the examples of every kind.
EDGES = [
    *(f"{kind}:{x}" for kind in ("brightness", "contrast") for x in (-1, 0.05, 1)),
    *("color_jitter:0.1", "occlusion:1", "random_shift:15", "jpeg:1", "jpeg:99", "saturation:0.7"),
    *("shadow:1@0", "shadow:0.6@1", "gamma:0.5", "gamma:10", "resize:0.01", "zoom:0.9", "haze:1"),
    *("defocus_blur:0.3", "defocus_blur:10", *(f"gaussian_blur:{x}" for x in (2, 3, 17, 31))),
    *(f"motion_blur:{x}" for x in ("0.5", "5@90", "7.5@30", "20@135")),
    *("cutout:0.2@9", "cutout:1@1", "distractor:1@0", "distractor:0.7@0.9", "salt_and_pepper:1"),
    *("background:1@8090a0@0.3", "background:0.3@404040@1", "random_convolution:1"),
    *("knocked_camera:15@90", "knocked_camera:5@10"),
]
CASES = [
    *(shift for kind in GRADED for shift in examples_of(kind)), *map(parse, EDGES),
    plated(0.6), plated(1.0, 0.5),
]  # fmt: skip


@pytest.mark.parametrize("spec", CASES, ids=str)
def test_a_view_is_that_of_the_loop(spec: Perturbation) -> None:
    """JPEG rounds values between bytes and beyond black and white, as resized frames have them."""
    frames, changed = photos() * (1.3 if spec.kind == "jpeg" else 1.0), 0.0
    for draw in (2, 3, 4) if is_stochastic(spec) else (0,):
        key = {**KEY, "draw": draw}
        expected = pair_reference.perturbed(frames.double().numpy(), spec.to_spec(), **key)
        found = perturb_frames(frames, spec, **key).double().numpy()
        np.testing.assert_allclose(found, expected, atol=4e-6)
        changed = max(changed, np.abs(expected - frames.double().numpy()).max())
    assert changed > 0.01


@pytest.mark.parametrize("quality", [10, 30, 50, 75, 95, 99])
def test_jpeg_is_the_standards(quality: int) -> None:
    """An independent float64 codec: quantisation tables, DCT, subsampling, interpolation."""
    rng = np.random.default_rng(5)
    image = rng.integers(0, 256, (4, 6, 3)).repeat(8, 0).repeat(8, 1)  # (32, 48, 3)
    image = (0.8 * image + rng.integers(0, 52, image.shape)).astype(np.uint8)
    frames = to_model_input(torch.from_numpy(image[None]), 32)
    view = perturb_frames(frames, Jpeg(quality=quality), **KEY)
    found = reference.pixels(view.double().numpy())[0].transpose(1, 2, 0) * 255
    difference, other = (
        np.abs(found - jpeg_reference.compressed(image.astype(float), q)).mean()
        for q in (quality, quality - 9)
    )
    assert difference < 0.8
    assert other > 2 * difference


@pytest.mark.parametrize(
    "spec", [GaussianBlur(kernel_size=69), DefocusBlur(radius=9.5), MotionBlur(length=40, angle=30)]
)
def test_a_transform_gives_the_sum_of_the_taps(spec: VisualChange) -> None:
    """So many are multiplied as Fourier transforms, frame by frame."""
    wide = np.random.default_rng(0).integers(0, 256, (3, 35, 37, 3), np.uint8)
    frames = to_model_input(torch.from_numpy(wide), 35)
    narrow = perturb_frames(frames, spec, **KEY)
    assert torch.equal(narrow[1:2], perturb_frames(frames[1:2], spec, **KEY))
    expected = pair_reference.perturbed(frames.double().numpy(), spec.to_spec(), **KEY)
    np.testing.assert_allclose(perturb_frames(frames.double(), spec, **KEY), expected, atol=1e-12)
    np.testing.assert_allclose(narrow, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("spec", "most", "words"),
    [
        (GaussianBlur(17), GaussianBlur(15), r"kernel_size: is 17.*side of 8 .*at most 15"),
        (RandomShift(8), RandomShift(7), "pixels: is 8, .*side of 8 pixels may be at most 7"),
        (DefocusBlur(7.1), DefocusBlur(7.0), r"radius: is 7\.1, .*of 8 pixels allow at most 7$"),
        (MotionBlur(14.5), MotionBlur(14.0), r"length: is 14\.5, .*of 8 pixels allow at most 14$"),
    ],
)
def test_what_does_not_fit_the_frames_says_what_would(
    spec: VisualChange, most: VisualChange, words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        perturb_frames(torch.zeros(1, 3, 8, 20), spec, **KEY)
    perturb_frames(torch.zeros(1, 3, 8, 20), most, **KEY)


def seen(spec: Perturbation, frames: torch.Tensor, draw: int) -> torch.Tensor:
    return perturb_frames(frames, spec, seed=0, anchor=0, draw=draw)


def test_a_plate_of_the_frames_own_size_marks_what_differs() -> None:
    """A thing before the plate stays, whatever colour it has; the plate's own digest names it."""
    frame = PLATE.copy()
    frame[3:6, 4:8] = 255 - frame[3:6, 4:8] // 2 * 2
    frame[3:6, 4:8, 0] = np.where(PLATE[3:6, 4:8, 0] < 128, 255, 0)
    frames = to_model_input(torch.from_numpy(frame[None]), 16)
    view = seen(plated(1.0), frames, 0)
    kept = (view == frames).all(1)[0]
    assert kept[3:6, 4:8].all() and kept.sum() == 12
    other = plated(1.0, plate=255 - PLATE)
    assert other.digest != plated(1.0).digest and str(other) != str(plated(1.0))
    assert len(to_plain(other)["plate"]) == 4 * PLATE.size / 3


def test_a_plate_of_another_aspect_is_an_error() -> None:
    larger = np.repeat(np.repeat(PLATE, 2, 0), 2, 1)
    assert seen(plated(1.0, plate=larger), photos(), 0).shape == photos().shape
    with pytest.raises(InvalidArgument, match="plate: is 16 x 18 pixels, of another aspect than"):
        seen(plated(1.0, plate=PLATE[:, :18]), photos(), 0)
