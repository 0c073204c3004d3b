"""Frames become the model input of the public training code."""

import numpy as np
import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.pixels import IMAGENET_MEAN, IMAGENET_STD, to_model_input, to_pixels


def random_frames(height: int, width: int, n: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(height * 1000 + width)
    return torch.randint(0, 256, (n, height, width, 3), generator=generator, dtype=torch.uint8)


def test_frames_of_the_model_size_are_only_normalised() -> None:
    frames = random_frames(24, 24)
    expected = (frames.numpy() / 255 - np.array(IMAGENET_MEAN)) / np.array(IMAGENET_STD)
    actual = to_model_input(frames, 24)
    assert actual.dtype == torch.float32
    np.testing.assert_allclose(actual.numpy(), expected.transpose(0, 3, 1, 2), atol=2e-6)


@pytest.mark.parametrize(
    ("height", "width", "size", "expected"),
    [(48, 64, 24, (24, 32)), (64, 48, 24, (32, 24)), (50, 71, 30, (30, 42)), (8, 8, 16, (16, 16))],
)
def test_the_shorter_side_becomes_the_image_size(
    height: int, width: int, size: int, expected: tuple[int, int]
) -> None:
    assert to_model_input(random_frames(height, width), size).shape == (2, 3, *expected)


def test_a_longer_side_survives_when_the_shorter_already_fits() -> None:
    assert to_model_input(random_frames(24, 40), 24).shape == (2, 3, 24, 40)


def triangle_weights(length: int, size: int) -> np.ndarray:
    """Bilinear weights whose support grows with the shrink factor: antialiased resizing."""
    scale = length / size
    weights = np.zeros((size, length))
    for out in range(size):
        centre = (out + 0.5) * scale
        for pixel in range(length):
            weights[out, pixel] = max(0.0, 1 - abs(pixel + 0.5 - centre) / max(scale, 1.0))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("height", "width", "size"), [(48, 48, 16), (40, 60, 13), (10, 10, 21)])
def test_resizing_is_bilinear_and_antialiased(height: int, width: int, size: int) -> None:
    frames = random_frames(height, width, n=1)
    normalised = ((frames.numpy() / 255 - IMAGENET_MEAN) / IMAGENET_STD)[0].transpose(2, 0, 1)
    tall, wide = to_model_input(frames, size).shape[2:]
    expected = (
        triangle_weights(height, tall) @ normalised @ triangle_weights(width, wide).T
    )  # (3, tall, wide)
    np.testing.assert_allclose(to_model_input(frames, size)[0].numpy(), expected, atol=2e-5)


def test_channel_order_is_rgb() -> None:
    red = torch.zeros(1, 4, 4, 3, dtype=torch.uint8)
    red[..., 0] = 255
    pixel = to_model_input(red, 4)[0, :, 0, 0]
    expected = [(float(c == 0) - IMAGENET_MEAN[c]) / IMAGENET_STD[c] for c in range(3)]
    np.testing.assert_allclose(pixel.numpy(), expected, rtol=1e-6)


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="image_size: is 0"):
        to_model_input(random_frames(4, 4), 0)
    with pytest.raises(InvalidArgument, match="0 x 4 pixels"):
        to_model_input(torch.zeros(1, 0, 4, 3, dtype=torch.uint8), 4)


def test_pixels_undo_the_normalisation_exactly() -> None:
    """Every level of every channel comes back."""
    levels = torch.arange(256, dtype=torch.uint8).view(1, 16, 16, 1).expand(-1, -1, -1, 3)
    assert torch.equal(to_pixels(to_model_input(levels, 16)), levels)


def test_pixels_round_and_clip_what_a_picture_cannot_show() -> None:
    wanted = np.array([-30.0, -0.4, 0.6, 127.4, 254.7, 255.4, 900.0])
    mean, std = (np.array(x)[:, None] for x in (IMAGENET_MEAN, IMAGENET_STD))
    frames = torch.from_numpy((wanted / 255 - mean) / std).float().view(1, 3, 1, 7)
    shown = to_pixels(frames)
    assert (shown.dtype, shown.shape) == (torch.uint8, (1, 1, 7, 3))
    assert shown[0, 0, :, 0].tolist() == [0, 0, 1, 127, 255, 255, 255]
    assert torch.equal(shown[..., 0], shown[..., 1])
    assert torch.equal(shown[..., 0], shown[..., 2])
