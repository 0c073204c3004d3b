"""Changes of scene, viewpoint and sensor in float64, pixel by pixel.

Written from docs/perturbations.md.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from acpc_server.perturb import Draws
from camera_reference import normalised, pixels
from pixel_reference import Array, model_input

Place = Callable[[float, float], tuple[float, float]]


def uniforms(draws: Draws, *shape: int) -> Array:
    """Uniform numbers of one draw."""
    return draws.uniforms((1, *shape))[0].double().numpy()


def occlusion(images: Array, spec: Any, draws: Draws) -> Array:
    return _cut_out(images, spec.size, 1, draws)


def cutout(images: Array, spec: Any, draws: Draws) -> Array:
    return _cut_out(images, spec.size, spec.patches, draws)


def _cut_out(images: Array, size: float, patches: int, draws: Draws) -> Array:
    uniform = draws.numbers(2 * patches)[0]
    height, width = images.shape[2:]
    tall, wide = round(height * size), round(width * size)
    out = pixels(images)
    for k in range(patches):
        top = math.floor(uniform[2 * k] * (height - tall + 1))
        left = math.floor(uniform[2 * k + 1] * (width - wide + 1))
        out[:, :, top : top + tall, left : left + wide] = 0.5
    return normalised(out)


def distractor(images: Array, spec: Any, draws: Draws) -> Array:
    """The centre walks in steps so small that it can turn round at each border exactly."""
    height, width = images.shape[2:]
    row, column, turn, *rgb = map(float, draws.numbers(6)[0])
    step = [spec.speed * math.sin(2 * math.pi * turn), spec.speed * math.cos(2 * math.pi * turn)]
    place = [row, column]
    out = pixels(images)
    for n in range(len(out)):
        for y, x in np.ndindex(height, width):
            away = math.hypot(y + 0.5 - place[0] * height, x + 0.5 - place[1] * width)
            share = min(max(spec.size * min(height, width) / 2 - away, 0.0), 1.0)
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


def background(images: Array, spec: Any, draws: Draws) -> Array:
    out, empty = pixels(images), _empty(images, spec)
    fields = np.stack([field(numbers, *out.shape[2:]) for numbers in uniforms(draws, 3, 4, 4)])
    for n, y, x in np.ndindex(len(out), *out.shape[2:]):
        apart = max(abs(out[n, c, y, x] - empty[c, y, x]) for c in range(3))
        share = spec.strength * min(max(2 - apart / spec.tolerance, 0.0), 1.0)
        out[n, :, y, x] = (1 - share) * out[n, :, y, x] + share * fields[:, y, x]
    return normalised(out)


def _empty(images: Array, spec: Any) -> Array:
    """What a background is known by, in [0, 1], (3, height, width)."""
    if spec.key:
        rgb = np.frombuffer(bytes.fromhex(spec.key), np.uint8) / 255
        return np.broadcast_to(rgb[:, None, None], images.shape[1:])
    plate = np.frombuffer(spec.plate, np.uint8).reshape(1, -1, spec.plate_width, 3)
    return pixels(model_input(plate, min(images.shape[2:])))[0]


def haze(images: Array, spec: Any, draws: Draws) -> Array:
    density = spec.strength * (1 + field(uniforms(draws, 4, 4), *images.shape[2:])) / 2
    return normalised((1 - density) * pixels(images) + density * 0.8)


def random_convolution(images: Array, spec: Any, draws: Draws) -> Array:
    weights = (2 * np.reshape(draws.numbers(81)[0], (3, 3, 3, 3)) - 1) / 3  # variance 1 / 27
    values = pixels(images)
    height, width = values.shape[2:]
    out = np.empty_like(values)
    for n, to, y, x in np.ndindex(*values.shape):
        total = 0.5
        for source, dy, dx in np.ndindex(3, 3, 3):
            row, column = min(max(y + dy - 1, 0), height - 1), min(max(x + dx - 1, 0), width - 1)
            total += weights[to, source, dy, dx] * (values[n, source, row, column] - 0.5)
        mixed = min(max(total, 0.0), 1.0)
        out[n, to, y, x] = values[n, to, y, x] + spec.strength * (mixed - values[n, to, y, x])
    return normalised(out)


def zoom(images: Array, spec: Any, draws: Draws) -> Array:
    height, width = images.shape[2:]
    cut, (down, right) = spec.cut, draws.numbers(2)[0]
    top, left = down * cut * height, right * cut * width

    def place(y: float, x: float) -> tuple[float, float]:
        return top + (y + 0.5) * (1 - cut) - 0.5, left + (x + 0.5) * (1 - cut) - 0.5

    return _sampled(images, place)


def knocked_camera(images: Array, spec: Any, draws: Draws) -> Array:
    """Each pixel's direction is turned about y, then x, then z, and projected again."""
    height, width = images.shape[2:]
    focal = max(height, width) / 2 / math.tan(math.radians(spec.field_of_view / 2))
    roll, pitch, yaw = (math.radians(spec.degrees * (2 * u - 1)) for u in draws.numbers(3)[0])

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


def salt_and_pepper(images: Array, spec: Any, draws: Draws) -> Array:
    out, share = pixels(images), spec.share
    uniform = uniforms(draws, len(out), *out.shape[2:])
    for n, y, x in np.ndindex(*uniform.shape):
        if uniform[n, y, x] < share / 2:
            out[n, :, y, x] = 0.0
        elif uniform[n, y, x] >= 1 - share / 2:
            out[n, :, y, x] = 1.0
    return normalised(out)


def stutter(images: Array, spec: Any, draws: Draws) -> Array:
    out, uniform = images.copy(), draws.numbers(len(images))[0]
    for time in range(1, len(images)):
        if uniform[time] < spec.chance:
            out[time] = out[time - 1]
    return out
