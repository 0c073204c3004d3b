"""Baseline JPEG with 4:2:0 subsampling in float64, from the standard: ITU-T T.81 and JFIF.

Entropy coding is lossless, so the loss is in the coefficients and in the bytes between the stages.
A codec's integer arithmetic may still differ by a grey level or two here and there.
"""

import numpy as np
from acpc.arrays import NDArray

Array = NDArray[np.float64]

# T.81, tables K.1 and K.2.
LUMA = """16 11 10 16 24 40 51 61 12 12 14 19 26 58 60 55 14 13 16 24 40 57 69 56
14 17 22 29 51 87 80 62 18 22 37 56 68 109 103 77 24 35 55 64 81 104 113 92
49 64 78 87 103 121 120 101 72 92 95 98 112 100 103 99"""
CHROMA = """17 18 24 47 99 99 99 99 18 21 26 66 99 99 99 99 24 26 56 99 99 99 99 99
47 66 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99
99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99"""
# JFIF: RGB to YCbCr, without the offset of 128 that chroma has.
FORWARD = np.array(
    [[0.299, 0.587, 0.114], [-0.168735892, -0.331264108, 0.5], [0.5, -0.418687589, -0.081312411]]
)


def table(text: str, quality: int) -> Array:
    """A quantisation table on libjpeg's quality scale."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    base = np.array([int(word) for word in text.split()]).reshape(8, 8)
    return np.clip((base * scale + 50) // 100, 1, 255).astype(float)


def quantised(plane: Array, steps: Array) -> Array:
    """Every 8 x 8 block through the DCT, rounding to multiples of ``steps``, and back."""
    k, x = np.mgrid[:8, :8]
    basis = np.cos((2 * x + 1) * k * np.pi / 16) * np.where(k == 0, 0.125**0.5, 0.5)
    out = np.empty_like(plane)
    for y in range(0, plane.shape[0], 8):
        for x0 in range(0, plane.shape[1], 8):
            block = basis @ plane[y : y + 8, x0 : x0 + 8] @ basis.T
            out[y : y + 8, x0 : x0 + 8] = basis.T @ (np.rint(block / steps) * steps) @ basis
    return np.clip(np.rint(out), -128, 127)


def doubled(plane: Array, axis: int) -> Array:
    """Each sample becomes two, a quarter of a sample to either side, interpolated."""
    plane = np.moveaxis(plane, axis, 0)
    before = np.concatenate([plane[:1], plane[:-1]])
    after = np.concatenate([plane[1:], plane[-1:]])
    pairs = np.stack([0.75 * plane + 0.25 * before, 0.75 * plane + 0.25 * after], axis=1)
    return np.moveaxis(pairs.reshape(-1, *plane.shape[1:]), 0, axis)


def compressed(image: Array, quality: int) -> Array:
    """(height, width, 3) grey levels 0 to 255, sides divisible by 16, as a decoder shows them."""
    luma, *chroma = np.rint(np.moveaxis(image @ FORWARD.T, -1, 0))
    planes = [quantised(luma - 128, table(LUMA, quality)) + 128]
    for plane in chroma:
        height, width = plane.shape
        total = plane.reshape(height // 2, 2, width // 2, 2).sum((1, 3))
        # libjpeg rounds a half down and up by turns along a row.
        halved = np.floor((total + np.resize([1, 2], width // 2)) / 4)
        decoded = quantised(halved, table(CHROMA, quality))
        planes.append(np.rint(doubled(doubled(decoded, 0), 1)))
    return np.clip(np.rint(np.stack(planes, axis=-1) @ np.linalg.inv(FORWARD).T), 0, 255)
