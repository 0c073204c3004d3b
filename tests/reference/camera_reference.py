"""Light, colour, compression, shifts and lens blurs in float64, pixel by pixel.

Written from docs/perturbations.md.
"""

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from acpc_server.perturb import Draws
from PIL import Image
from pixel_reference import MEAN, STD, Array

Colour = Callable[[list[float]], list[float]]


def pixels(images: Array) -> Array:
    """To [0, 1]."""
    return images * STD[:, None, None] + MEAN[:, None, None]


def normalised(values: Array) -> Array:
    return (values - MEAN[:, None, None]) / STD[:, None, None]


def recoloured(images: Array, *colours: Colour) -> Array:
    """Each function of (red, green, blue) at every pixel, held to [0, 1] after each."""
    values = pixels(images)
    out = np.empty_like(values)
    for n, y, x in np.ndindex(len(values), *values.shape[2:]):
        rgb = [float(v) for v in values[n, :, y, x]]
        for colour in colours:
            rgb = [min(max(v, 0.0), 1.0) for v in colour(rgb)]
        out[n, :, y, x] = rgb
    return normalised(out)


def brightness(images: Array, spec: Any, _: Draws) -> Array:
    return recoloured(images, lit(spec.change))


def contrast(images: Array, spec: Any, _: Draws) -> Array:
    return recoloured(images, spread(spec.change))


def saturation(images: Array, spec: Any, _: Draws) -> Array:
    return recoloured(images, saturated(spec.change))


def lit(change: float) -> Colour:
    return lambda rgb: [v * (1 + change) for v in rgb]


def spread(change: float) -> Colour:
    return lambda rgb: [0.5 + (v - 0.5) * (1 + change) for v in rgb]


def saturated(change: float) -> Colour:
    """The saturate matrix of Filter Effects, row by row, for 1 + change."""
    s = 1 + change
    return lambda rgb: [
        (0.213 + 0.787 * s) * rgb[0] + (0.715 - 0.715 * s) * rgb[1] + (0.072 - 0.072 * s) * rgb[2],
        (0.213 - 0.213 * s) * rgb[0] + (0.715 + 0.285 * s) * rgb[1] + (0.072 - 0.072 * s) * rgb[2],
        (0.213 - 0.213 * s) * rgb[0] + (0.715 - 0.715 * s) * rgb[1] + (0.072 + 0.928 * s) * rgb[2],
    ]


def turned(turns: float) -> Colour:
    """The hueRotate matrix of Filter Effects, row by row."""
    c, s = math.cos(2 * math.pi * turns), math.sin(2 * math.pi * turns)
    luma = (0.213, 0.715, 0.072)
    cosines = [[0.787, -0.715, -0.072], [-0.213, 0.285, -0.072], [-0.213, -0.715, 0.928]]
    sines = [[-0.213, -0.715, 0.928], [0.143, 0.140, -0.283], [-0.787, 0.715, 0.072]]
    rows = [[luma[j] + c * cosines[i][j] + s * sines[i][j] for j in range(3)] for i in range(3)]
    return lambda rgb: [sum(w * v for w, v in zip(row, rgb, strict=True)) for row in rows]


def color_jitter(images: Array, spec: Any, draws: Draws) -> Array:
    light, wide, chroma, hue = (2 * u - 1 for u in draws.numbers(4)[0])
    reach = 0.8 * spec.strength
    return recoloured(
        images, lit(reach * light), spread(reach * wide), saturated(reach * chroma),
        turned(0.2 * spec.strength * hue),
    )  # fmt: skip


def jpeg(images: Array, spec: Any, _: Draws) -> Array:
    """Rounded to bytes, through Pillow, frame by frame."""
    if spec.quality == 100:
        return images
    out = []
    for frame in pixels(images):
        bytes_ = np.rint(np.clip(frame * 255, 0, 255)).astype(np.uint8).transpose(1, 2, 0)
        stream = io.BytesIO()
        Image.fromarray(bytes_).save(stream, format="JPEG", quality=spec.quality, subsampling=2)
        out.append(np.asarray(Image.open(io.BytesIO(stream.getvalue()))).transpose(2, 0, 1) / 255)
    return normalised(np.stack(out))


def random_shift(images: Array, spec: Any, draws: Draws) -> Array:
    height, width = images.shape[2:]
    reach = spec.pixels
    down, right = (math.floor(u * (2 * reach + 1)) - reach for u in draws.numbers(2)[0])
    out = np.empty_like(images)
    for y in range(height):
        for x in range(width):
            row, column = min(max(y - down, 0), height - 1), min(max(x - right, 0), width - 1)
            out[:, :, y, x] = images[:, :, row, column]
    return out


def shadow(images: Array, spec: Any, draws: Draws) -> Array:
    """The line's point is in the middle half; it is darker in the direction drawn, y downwards."""
    height, width = images.shape[2:]
    edge = max(1.0, spec.softness * min(height, width))
    row, column, turn = draws.numbers(3)[0]
    y0, x0 = (0.25 + row / 2) * height, (0.25 + column / 2) * width
    angle = 2 * math.pi * turn
    out = pixels(images)
    for y, x in np.ndindex(height, width):
        depth = (x + 0.5 - x0) * math.cos(angle) + (y + 0.5 - y0) * math.sin(angle)
        out[:, :, y, x] *= 1 - spec.strength * min(max(0.5 + depth / edge, 0.0), 1.0)
    return normalised(out)


def gamma(images: Array, spec: Any, _: Draws) -> Array:
    levels = np.arange(256)
    curve = (levels / 255) ** spec.exponent
    return normalised(np.interp(pixels(images) * 255, levels, curve))


def defocus_blur(images: Array, spec: Any, _: Draws) -> Array:
    return _blurred(images, lambda x, y: max(0.0, (x * x + y * y) ** 0.5 - spec.radius))


def motion_blur(images: Array, spec: Any, _: Draws) -> Array:
    """Distance to the segment: to an end where the foot of the perpendicular lies outside."""
    tip = spec.length / 2 * np.exp(1j * math.radians(spec.angle))

    def distance(x: float, y: float) -> float:
        point = complex(x, y)
        if spec.length:
            foot = ((point - tip) * tip.conjugate()).real / abs(tip) ** 2
            if -2 < foot < 0:
                return abs((point * tip.conjugate()).imag) / abs(tip)
        return min(abs(point - tip), abs(point + tip))

    return _blurred(images, distance)


def _blurred(images: Array, distance: Callable[[float, float], float]) -> Array:
    """Mean with weights 1 - distance where that is positive; y counts upwards."""
    height, width = images.shape[2:]
    reach = min(height, width) - 1
    taps = {
        (x, y): 1 - distance(x, y)
        for x in range(-reach, reach + 1)
        for y in range(-reach, reach + 1)
        if distance(x, y) < 1
    }
    out = np.zeros_like(images)
    for row in range(height):
        for column in range(width):
            for (x, y), weight in taps.items():
                source = images[:, :, _mirrored(row - y, height), _mirrored(column + x, width)]
                out[:, :, row, column] += weight * source
    return out / sum(taps.values())


def _mirrored(index: int, side: int) -> int:
    return index if 0 <= index < side else -index if index < 0 else 2 * (side - 1) - index
