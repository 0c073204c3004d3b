"""Each perturbation against an explicit loop, and what none of them may depend on."""

import math

import numpy as np
import pytest
import torch
from acpc.contract import GaussianBlur, GaussianNoise, Resize
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.pixels import IMAGENET_STD
from acpc_server.perturb import DrawKey, Draws, perturb_frames

KEY = {"seed": 9101, "anchor": 3, "draw": 1}


def frames_of(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def reflected(index: int, side: int) -> int:
    """Mirror at the centre of the border pixel, until inside."""
    while not 0 <= index < side:
        index = -index if index < 0 else 2 * (side - 1) - index
    return index


def blur_by_loops(frames: np.ndarray, kernel_size: int) -> np.ndarray:
    sigma = 0.3 * ((kernel_size - 1) * 0.5 - 1) + 0.8
    reach = kernel_size // 2
    total, kernel = 0.0, {}
    for dy in range(-reach, reach + 1):
        for dx in range(-reach, reach + 1):
            kernel[dy, dx] = math.exp(-(dy * dy + dx * dx) / (2 * sigma * sigma))
            total += kernel[dy, dx]
    n, channels, height, width = frames.shape
    out = np.zeros_like(frames)
    for y in range(height):
        for x in range(width):
            value = np.zeros((n, channels))
            for (dy, dx), weight in kernel.items():
                value += weight * frames[:, :, reflected(y + dy, height), reflected(x + dx, width)]
            out[:, :, y, x] = value / total
    return out


def bilinear_by_loops(frames: np.ndarray, height: int, width: int) -> np.ndarray:
    n, channels, old_height, old_width = frames.shape
    out = np.zeros((n, channels, height, width))
    for y in range(height):
        for x in range(width):
            sy = max((y + 0.5) * old_height / height - 0.5, 0.0)
            sx = max((x + 0.5) * old_width / width - 0.5, 0.0)
            y0, x0 = math.floor(sy), math.floor(sx)
            y1, x1 = min(y0 + 1, old_height - 1), min(x0 + 1, old_width - 1)
            wy, wx = sy - y0, sx - x0
            top = (1 - wx) * frames[:, :, y0, x0] + wx * frames[:, :, y0, x1]
            bottom = (1 - wx) * frames[:, :, y1, x0] + wx * frames[:, :, y1, x1]
            out[:, :, y, x] = (1 - wy) * top + wy * bottom
    return out


@pytest.mark.parametrize("kernel_size", [1, 2, 3, 6, 15, 17])
def test_blur_matches_a_two_dimensional_loop(kernel_size: int) -> None:
    frames = frames_of(2, 3, 9, 11)
    spec = GaussianBlur(kernel_size=kernel_size)
    found = perturb_frames(frames, spec, **KEY)
    expected = blur_by_loops(frames.double().numpy(), kernel_size | 1)
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-6)


def test_blur_that_does_not_fit_names_the_largest_kernel() -> None:
    frames = frames_of(1, 3, 8, 20)
    perturb_frames(frames, GaussianBlur(kernel_size=15), **KEY)
    with pytest.raises(InvalidArgument, match=r"kernel_size: is 17.*side of 8 .*at most 15"):
        perturb_frames(frames, GaussianBlur(kernel_size=17), **KEY)


@pytest.mark.parametrize(("scale", "sides"), [(0.25, (3, 4)), (0.5, (6, 8)), (0.01, (1, 1))])
def test_resize_matches_the_bilinear_formula(scale: float, sides: tuple[int, int]) -> None:
    frames = frames_of(2, 3, 12, 15)
    found = perturb_frames(frames, Resize(scale=scale), **KEY)
    down = bilinear_by_loops(frames.double().numpy(), *sides)
    np.testing.assert_allclose(found.numpy(), bilinear_by_loops(down, 12, 15), atol=2e-6)


def test_noise_is_the_draw_over_the_channel_std_in_c_order() -> None:
    frames = frames_of(3, 3, 6, 7)
    found = perturb_frames(frames, GaussianNoise(sigma=0.08), **KEY)
    draws = Draws("gaussian_noise", [DrawKey(**KEY)], torch.device("cpu"))
    normals = iter(draws.normals((frames.numel(),)).tolist())
    expected = frames.double().numpy()
    for frame in range(3):
        for channel in range(3):
            for y in range(6):
                for x in range(7):
                    noise = 0.08 * next(normals) / IMAGENET_STD[channel]
                    expected[frame, channel, y, x] += noise
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_noise_has_the_stated_std_in_pixel_units_and_is_not_clipped() -> None:
    frames = torch.full((4, 3, 100, 100), 10.0)  # far outside what pixels can be
    noise = (perturb_frames(frames, GaussianNoise(sigma=0.5), **KEY) - frames).double()
    std = noise.std(dim=(0, 2, 3)) * torch.tensor(IMAGENET_STD).double()
    torch.testing.assert_close(std, torch.full((3,), 0.5).double(), rtol=0.02, atol=0.0)
    assert noise.mean(dim=(0, 2, 3)).abs().max() < 5 * 0.5 / 0.224 / 200
    flat = noise.reshape(12, -1).numpy()  # frames and channels are independent
    assert np.abs(np.corrcoef(flat) - np.eye(12)).max() < 0.05


def test_severities_share_their_random_numbers() -> None:
    frames = torch.zeros(2, 3, 8, 8)
    weak = perturb_frames(frames, GaussianNoise(sigma=0.02), **KEY)
    strong = perturb_frames(frames, GaussianNoise(sigma=0.08), **KEY)
    torch.testing.assert_close(strong, 4 * weak)
