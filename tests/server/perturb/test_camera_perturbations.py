"""Light, colour, compression, obstacles, shifts and lens blurs against float64 loops."""

import camera_reference as reference
import jpeg_reference
import numpy as np
import pair_reference
import pytest
import torch
from acpc.contract import (
    KINDS,
    ColorJitter,
    DefocusBlur,
    Gamma,
    GaussianBlur,
    Jpeg,
    MotionBlur,
    RandomShift,
    VisualChange,
    example,
    parse,
)
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.pixels import to_model_input
from acpc_server.perturb import blurs, drawing_work, perturb_frames

KEY = {"seed": 9101, "anchor": 3, "draw": 2}


def photos(count: int = 2, height: int = 11, width: int = 14, seed: int = 0) -> torch.Tensor:
    """Random bytes as model input."""
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (count, height, width, 3), np.uint8)
    return to_model_input(torch.from_numpy(frames), min(height, width))


BY_LOOPS = [
    *(f"{kind}:{x}" for kind in ("brightness", "contrast") for x in (-1, -0.4, 0.05, 0.7, 1)),
    *(f"{kind}:{x}" for kind in ("color_jitter", "occlusion") for x in (0.1, 0.5, 1)),
    *(f"random_shift:{x}" for x in (1, 4, 10)), *(f"jpeg:{x}" for x in (1, 37, 99)),
    *(f"shadow:{x}" for x in ("0.3@0.25", "1@0", "0.6@1")),
    *(f"gamma:{x}" for x in (0.5, 0.9, 1.1, 2.2, 10)),
    *(f"defocus_blur:{x}" for x in (0.3, 1, 2.5, 10)),
    *(f"gaussian_blur:{x}" for x in (2, 3, 6, 15, 17)), *(f"resize:{x}" for x in (0.25, 0.5, 0.01)),
    "gaussian_noise:0.08", *(f"motion_blur:{x}" for x in ("0.5", "5", "5@90", "7.5@30", "20@135")),
]  # fmt: skip


@pytest.mark.parametrize("text", BY_LOOPS)
def test_a_view_is_that_of_the_loop(text: str) -> None:
    """JPEG rounds values between bytes and beyond black and white, as resized frames have them."""
    frames, spec = photos() * (1.3 if text.startswith("jpeg") else 1.0), parse(text)
    expected = pair_reference.perturbed(frames.double().numpy(), spec.to_spec(), **KEY)
    found = perturb_frames(frames, spec, **KEY).double().numpy()
    np.testing.assert_allclose(found, expected, atol=4e-6)
    assert np.abs(expected - frames.double().numpy()).max() > 0.01  # something happened


def test_hue_and_saturation_keep_greys() -> None:
    """What a camera's white balance does to grey is not in this perturbation."""
    ramp = torch.arange(0, 256, 5, dtype=torch.uint8)[None, None, :, None].expand(1, 52, -1, 3)
    frames = to_model_input(ramp, 52)
    for draw in range(5):
        view = perturb_frames(frames, ColorJitter(strength=1.0), seed=1, anchor=2, draw=draw)
        pixels = reference.pixels(view.double().numpy())
        assert np.ptp(pixels, axis=1).max() < 1e-6


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
    print(
        f"quality {quality}: mean {difference:.2f} levels; from quality {quality - 9} {other:.2f}"
    )
    assert difference < 0.8
    assert other > 2 * difference


def test_gamma_is_the_power_at_every_byte() -> None:
    ramp = torch.arange(256, dtype=torch.uint8).view(1, 16, 16, 1).expand(1, 16, 16, 3)
    view = perturb_frames(to_model_input(ramp, 16), Gamma(exponent=2.2), **KEY)
    found = reference.pixels(view.double().numpy())[0, 0].flatten()
    np.testing.assert_allclose(found, (np.arange(256) / 255) ** 2.2, atol=1e-6)


@pytest.mark.parametrize(
    "spec", [GaussianBlur(kernel_size=69), DefocusBlur(radius=9.5), MotionBlur(length=40, angle=30)]
)
def test_a_transform_gives_the_sum_of_the_taps(
    spec: VisualChange, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = photos(3, 35, 37)
    narrow = perturb_frames(frames, spec, **KEY)
    assert torch.equal(narrow[1:2], perturb_frames(frames[1:2], spec, **KEY))
    found = perturb_frames(frames.double(), spec, **KEY)
    monkeypatch.setattr(blurs, "TRANSFORM_TAPS", 10**9)
    expected = perturb_frames(frames.double(), spec, **KEY)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert not torch.equal(found, expected)  # so two ways were compared
    torch.testing.assert_close(narrow.double(), expected, rtol=0, atol=1e-6)


def test_views_have_a_price_before_they_are_drawn() -> None:
    """It grows with what is asked for, to what a transform costs."""
    radii = [DefocusBlur(radius=radius) for radius in (0.0, 1.0, 2.5, 6.0, 31.0)]
    prices = [drawing_work(spec, 2, 50) for spec in radii]
    assert prices == sorted(prices) and prices[0] < prices[2] < prices[3] < 30 * prices[2]
    assert drawing_work(radii[2], 6, 100) == 6 * prices[2]
    known = [drawing_work(parse(example(cls)), 1, 1) for cls in KINDS.values() if cls.example]
    assert len(known) > 10 and all(0 < price < 100 for price in known)


def test_motion_at_45_degrees_points_up_and_right() -> None:
    frames = torch.zeros(1, 3, 9, 9)
    frames[..., 4, 4] = 1.0
    view = perturb_frames(frames, MotionBlur(length=5.0, angle=45.0), **KEY)[0, 0]
    assert view[3, 5] == pytest.approx(view[5, 3])
    assert view[3, 5] > 10 * view[3, 3]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (RandomShift(pixels=8), "pixels: is 8, .*side of 8 pixels may be at most 7"),
        (DefocusBlur(radius=7.1), r"radius: is 7\.1, .*side of 8 pixels allow at most 7$"),
        (MotionBlur(length=14.5), r"length: is 14\.5, .*side of 8 pixels allow at most 14$"),
    ],
)
def test_what_does_not_fit_the_frames_says_what_would(spec: VisualChange, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        perturb_frames(torch.zeros(1, 3, 8, 20), spec, **KEY)


@pytest.mark.parametrize(
    "spec", [RandomShift(pixels=7), DefocusBlur(radius=7.0), MotionBlur(length=14.0)]
)
def test_the_most_that_fits_is_taken(spec: VisualChange) -> None:
    perturb_frames(torch.zeros(1, 3, 8, 20), spec, **KEY)
