"""Frames become the model input of the public training code."""

import numpy as np
import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.pixels import IMAGENET_MEAN, IMAGENET_STD, to_model_input, to_pixels


def random_frames(height: int, width: int, n: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(height * 1000 + width)
    return torch.randint(0, 256, (n, height, width, 3), generator=generator, dtype=torch.uint8)


def triangle_weights(length: int, size: int) -> np.ndarray:
    """Bilinear weights whose support grows with the shrink factor: antialiased resizing."""
    scale = length / size
    weights = np.zeros((size, length))
    for out in range(size):
        centre = (out + 0.5) * scale
        for pixel in range(length):
            weights[out, pixel] = max(0.0, 1 - abs(pixel + 0.5 - centre) / max(scale, 1.0))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("height", "width", "size", "tall", "wide"),
    [(48, 64, 24, 24, 32), (64, 48, 24, 32, 24), (50, 71, 30, 30, 42), (40, 60, 13, 13, 19),
     (10, 10, 21, 21, 21), (24, 40, 24, 24, 40), (24, 24, 24, 24, 24)],
)  # fmt: skip
def test_the_shorter_side_becomes_the_image_size(
    height: int, width: int, size: int, tall: int, wide: int
) -> None:
    """Resizing is bilinear and antialiased; frames that fit are only normalised."""
    frames = random_frames(height, width)
    channels = ((frames.numpy() / 255 - IMAGENET_MEAN) / IMAGENET_STD).transpose(0, 3, 1, 2)
    expected = triangle_weights(height, tall) @ channels @ triangle_weights(width, wide).T
    actual = to_model_input(frames, size)
    assert actual.dtype == torch.float32
    tolerance = 2e-6 if size == min(height, width) else 2e-5
    np.testing.assert_allclose(actual, expected, atol=tolerance)


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="image_size: is 0"):
        to_model_input(random_frames(4, 4), 0)
    with pytest.raises(InvalidArgument, match="0 x 4 pixels"):
        to_model_input(torch.zeros(1, 0, 4, 3, dtype=torch.uint8), 4)


def test_pixels_undo_the_normalisation_exactly() -> None:
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
