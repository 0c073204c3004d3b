"""What fits a blur, and the scale of noise; test_camera_perturbations has both as loops."""

import numpy as np
import pytest
import torch
from acpc.contract import GaussianBlur, GaussianNoise
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.pixels import IMAGENET_STD
from acpc_server.perturb import perturb_frames

KEY = {"seed": 9101, "anchor": 3, "draw": 1}


def frames_of(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_blur_that_does_not_fit_names_the_largest_kernel() -> None:
    frames = frames_of(1, 3, 8, 20)
    perturb_frames(frames, GaussianBlur(kernel_size=15), **KEY)
    with pytest.raises(InvalidArgument, match=r"kernel_size: is 17.*side of 8 .*at most 15"):
        perturb_frames(frames, GaussianBlur(kernel_size=17), **KEY)


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
