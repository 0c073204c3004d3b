"""Model input and perturbed views in float64, from their formulas; matrices act on one axis.

Here, in ``camera_reference`` and in ``scene_reference`` the function of a kind has its name. It
takes normalised images, (n, 3, height, width), the kind's message, and the draws.
"""

import math
from typing import Any

import numpy as np
from acpc.arrays import NDArray
from acpc_server.perturb import Draws

Array = NDArray[np.float64]

MEAN = np.array([0.485, 0.456, 0.406])
STD = np.array([0.229, 0.224, 0.225])


def antialiased(old: int, new: int) -> Array:
    """Triangle filter over max(1, old / new) input pixels, pixel centres at half integers."""
    scale = old / new
    reach = max(scale, 1.0)
    matrix = np.zeros((new, old))
    for row in range(new):
        for column in range(old):
            distance = abs(column + 0.5 - scale * (row + 0.5)) / reach
            matrix[row, column] = max(0.0, 1 - distance)
    return matrix / matrix.sum(1, keepdims=True)


def bilinear(old: int, new: int) -> Array:
    """Two nearest input pixels, whatever the scale; edges repeated."""
    matrix = np.zeros((new, old))
    for row in range(new):
        place = max(0.0, (row + 0.5) * old / new - 0.5)
        low = min(math.floor(place), old - 1)
        matrix[row, low] += 1 - (place - low)
        matrix[row, min(low + 1, old - 1)] += place - low
    return matrix


def blurring(side: int, kernel: int) -> Array:
    """Normalised Gaussian taps; the border reflects without repeating its pixel."""
    reach = kernel // 2
    sigma = 0.3 * ((kernel - 1) * 0.5 - 1) + 0.8
    taps = [math.exp(-((tap - reach) ** 2) / (2 * sigma * sigma)) for tap in range(kernel)]
    matrix = np.zeros((side, side))
    for row in range(side):
        for tap in range(kernel):
            source = abs(row + tap - reach)
            source = 2 * (side - 1) - source if source >= side else source
            matrix[row, source] += taps[tap] / sum(taps)
    return matrix


def along(down: Array, across: Array, images: Array) -> Array:
    """Both axes of (..., height, width)."""
    return down @ images @ across.T


def model_input(frames: NDArray[np.uint8], size: int) -> Array:
    """(n, height, width, 3) to (n, 3, h, w): ImageNet statistics, then the shorter side to size."""
    images = ((frames / 255.0 - MEAN) / STD).transpose(0, 3, 1, 2)
    height, width = images.shape[2:]
    shorter = min(height, width)
    if shorter == size:
        return images
    rows, columns = (int(size * side / shorter) for side in (height, width))
    return along(antialiased(height, rows), antialiased(width, columns), images)


def noisy(images: Array, normals: Array, sigma: float) -> Array:
    """Noise of standard deviation ``sigma`` on the scale where pixels lie in [0, 1]."""
    return images + sigma * normals.astype(np.float64) / STD[:, None, None]


def identity(images: Array, _: Any, __: Draws) -> Array:
    return images


def gaussian_noise(images: Array, spec: Any, draws: Draws) -> Array:
    return noisy(images, draws.normals(images.shape).numpy(), spec.sigma)


def gaussian_blur(images: Array, spec: Any, _: Draws) -> Array:
    down, across = (blurring(side, spec.kernel_size | 1) for side in images.shape[-2:])
    return along(down, across, images)


def resize(images: Array, spec: Any, _: Draws) -> Array:
    """Down to round(side * scale) and back."""
    for axis in (-2, -1):
        side = images.shape[axis]
        small = max(1, round(side * spec.scale))
        matrix = bilinear(small, side) @ bilinear(side, small)
        images = np.moveaxis(np.tensordot(matrix, images, (1, axis)), 0, axis)
    return images
