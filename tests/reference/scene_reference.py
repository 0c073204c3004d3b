"""Changes of scene, viewpoint and sensor in float64, pixel by pixel.

Written from docs/perturbations.md. Images are normalised, (n, 3, height, width); random numbers are
given, uniform in [0, 1).
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from acpc.arrays import NDArray
from camera_reference import Array, normalised, pixels, recoloured, saturated

Numbers = Sequence[float] | NDArray[np.float64]
Place = Callable[[float, float], tuple[float, float]]


def colourful(images: Array, change: float) -> Array:
    return recoloured(images, saturated(change))


def cut_out(images: Array, size: float, patches: int, uniform: Numbers) -> Array:
    height, width = images.shape[2:]
    tall, wide = round(height * size), round(width * size)
    out = pixels(images)
    for k in range(patches):
        top = math.floor(uniform[2 * k] * (height - tall + 1))
        left = math.floor(uniform[2 * k + 1] * (width - wide + 1))
        out[:, :, top : top + tall, left : left + wide] = 0.5
    return normalised(out)


def distracted(images: Array, size: float, speed: float, uniform: Numbers) -> Array:
    """The centre walks in steps so small that it can turn round at each border exactly."""
    height, width = images.shape[2:]
    row, column, turn, *rgb = map(float, uniform)
    step = [speed * math.sin(2 * math.pi * turn), speed * math.cos(2 * math.pi * turn)]
    place = [row, column]
    out = pixels(images)
    for n in range(len(out)):
        for y, x in np.ndindex(height, width):
            away = math.hypot(y + 0.5 - place[0] * height, x + 0.5 - place[1] * width)
            share = min(max(size * min(height, width) / 2 - away, 0.0), 1.0)
            for c in range(3):
                out[n, c, y, x] += share * (rgb[c] - out[n, c, y, x])
        for axis in (0, 1):
            place[axis] += step[axis]
            if not 0 <= place[axis] <= 1:  # a wall is met at most once a step
                place[axis] = -place[axis] if place[axis] < 0 else 2 - place[axis]
                step[axis] = -step[axis]
    return normalised(out)


def field(numbers: Array, height: int, width: int) -> Array:
    """Bilinear between the numbers of a square grid, whose outer ones are the corner pixels'."""
    last = len(numbers) - 1

    def place(row: float, column: float) -> tuple[float, float]:
        return row * last / (height - 1), column * last / (width - 1)

    return _sampled(numbers[None, None], place, (height, width))[0, 0]


def another_background(
    images: Array, strength: float, empty: Array, tolerance: float, uniform: Array
) -> Array:
    """``empty`` (3, height, width) in [0, 1]; ``uniform`` (3, 4, 4)."""
    out = pixels(images)
    fields = np.stack([field(numbers, *out.shape[2:]) for numbers in uniform])
    for n, y, x in np.ndindex(len(out), *out.shape[2:]):
        apart = max(abs(out[n, c, y, x] - empty[c, y, x]) for c in range(3))
        share = strength * min(max(2 - apart / tolerance, 0.0), 1.0)
        out[n, :, y, x] = (1 - share) * out[n, :, y, x] + share * fields[:, y, x]
    return normalised(out)


def hazy(images: Array, strength: float, uniform: Array) -> Array:
    density = strength * (1 + field(uniform, *images.shape[2:])) / 2
    return normalised((1 - density) * pixels(images) + density * 0.8)


def convolved(images: Array, strength: float, uniform: Numbers) -> Array:
    weights = (2 * np.reshape(uniform, (3, 3, 3, 3)) - 1) / 3  # variance 1 / 27
    values = pixels(images)
    height, width = values.shape[2:]
    out = np.empty_like(values)
    for n, to, y, x in np.ndindex(*values.shape):
        total = 0.5
        for source, dy, dx in np.ndindex(3, 3, 3):
            row, column = min(max(y + dy - 1, 0), height - 1), min(max(x + dx - 1, 0), width - 1)
            total += weights[to, source, dy, dx] * (values[n, source, row, column] - 0.5)
        mixed = min(max(total, 0.0), 1.0)
        out[n, to, y, x] = (1 - strength) * values[n, to, y, x] + strength * mixed
    return normalised(out)


def zoomed(images: Array, cut: float, uniform: Numbers) -> Array:
    height, width = images.shape[2:]
    top, left = uniform[0] * cut * height, uniform[1] * cut * width

    def place(y: float, x: float) -> tuple[float, float]:
        return top + (y + 0.5) * (1 - cut) - 0.5, left + (x + 0.5) * (1 - cut) - 0.5

    return _sampled(images, place)


def knocked(images: Array, degrees: float, view: float, uniform: Numbers) -> Array:
    """Each pixel's direction is turned about y, then x, then z, and projected again."""
    height, width = images.shape[2:]
    focal = max(height, width) / 2 / math.tan(math.radians(view / 2))
    roll, pitch, yaw = (math.radians(degrees * (2 * u - 1)) for u in uniform)

    def turned(a: float, b: float, angle: float) -> tuple[float, float]:
        rotated = complex(a, b) * complex(math.cos(angle), math.sin(angle))
        return rotated.real, rotated.imag

    def place(row: float, column: float) -> tuple[float, float]:
        x, y, z = column - (width - 1) / 2, row - (height - 1) / 2, focal
        z, x = turned(z, x, yaw)
        y, z = turned(y, z, pitch)
        x, y = turned(x, y, roll)
        return y / z * focal + (height - 1) / 2, x / z * focal + (width - 1) / 2

    return _sampled(images, place)


def _sampled(images: Array, place: Place, size: tuple[int, int] | None = None) -> Array:
    """Bilinear at the place of each pixel, held to the centres of the border pixels."""
    height, width = images.shape[2:]
    out = np.zeros((*images.shape[:2], *(size or (height, width))))
    for row, column in np.ndindex(*out.shape[2:]):
        y, x = place(row, column)
        y, x = min(max(y, 0.0), height - 1), min(max(x, 0.0), width - 1)
        top, left = min(int(y), height - 2), min(int(x), width - 2)
        for dy, dx in np.ndindex(2, 2):
            weight = (y - top if dy else 1 - y + top) * (x - left if dx else 1 - x + left)
            out[:, :, row, column] += weight * images[:, :, top + dy, left + dx]
    return out


def peppered(images: Array, share: float, uniform: Array) -> Array:
    """``uniform`` (n, height, width)."""
    out = pixels(images)
    for n, y, x in np.ndindex(*uniform.shape):
        if uniform[n, y, x] < share / 2:
            out[n, :, y, x] = 0.0
        elif uniform[n, y, x] >= 1 - share / 2:
            out[n, :, y, x] = 1.0
    return normalised(out)


def stuttered(images: Array, chance: float, uniform: Numbers) -> Array:
    out = images.copy()
    for time in range(1, len(images)):
        if uniform[time] < chance:
            out[time] = out[time - 1]
    return out
