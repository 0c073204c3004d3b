"""A draw depends on its key alone, and its numbers are what the documentation says."""

import hashlib
import math
import struct
import sys
from collections.abc import Iterator

import numpy as np
import processes
import pytest
import torch
from acpc.contract import GaussianNoise
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.keyed_random import standard_normals
from acpc_server.perturb import perturb_frames
from acpc_server.perturb.transforms import draw_generator

MASK = 2**64 - 1


def words32(name: str, seed: int, anchor: int, draw: int) -> Iterator[int]:
    """SFC64 (Doty-Humphrey) from the documented key, as 32-bit halves, low half first."""
    key = b"acpc/draw/1\0" + struct.pack("<QQQ", seed, anchor, draw) + name.encode()
    a, b, c, counter = struct.unpack("<4Q", hashlib.sha256(key).digest())
    while True:
        out = (a + b + counter) & MASK
        counter = (counter + 1) & MASK
        a = b ^ (b >> 11)
        b = (c + (c << 3)) & MASK
        c = (((c << 24) | (c >> 40)) + out) & MASK
        yield out & 0xFFFFFFFF
        yield out >> 32


class Ziggurat:
    """Marsaglia and Tsang's method with 256 strips and float32 tables, as NumPy documents it."""

    R = 3.6541528853610088

    def __init__(self) -> None:
        tail = math.exp(-0.5 * self.R**2)
        area = self.R * tail + math.sqrt(math.pi / 2) * math.erfc(self.R / math.sqrt(2))
        scale = 2.0**23
        edge = [0.0] * 256  # right edge of strip i, widest last
        edge[255] = self.R
        for i in range(254, 0, -1):
            above = edge[i + 1]
            edge[i] = math.sqrt(-2 * math.log(area / above + math.exp(-0.5 * above**2)))
        base = area / tail
        self.accept = [int(self.R / base * scale), 0]
        self.accept += [int(edge[i - 1] / edge[i] * scale) for i in range(2, 256)]
        self.width = [np.float32(base / scale)] + [np.float32(x / scale) for x in edge[1:]]
        self.height = [np.float32(math.exp(-0.5 * x**2)) for x in edge]

    def next(self, words: Iterator[int]) -> np.float32:
        while True:
            word = next(words)
            strip, negative, mantissa = word & 0xFF, (word >> 8) & 1, (word >> 9) & 0x7FFFFF
            x = np.float32(mantissa) * self.width[strip]
            if mantissa < self.accept[strip]:
                return -x if negative else x
            if strip == 0:
                return self._tail(words, bool((mantissa >> 8) & 1))
            rise = self.height[strip - 1] - self.height[strip]
            level = rise * self._uniform(words) + self.height[strip]
            if level < math.exp(-0.5 * float(x) * float(x)):
                return -x if negative else x

    def _tail(self, words: Iterator[int], negative: bool) -> np.float32:
        while True:
            beyond = -np.log1p(-self._uniform(words)) * np.float32(1 / self.R)
            height = -np.log1p(-self._uniform(words))
            if height + height > beyond * beyond:
                x = np.float32(self.R) + beyond
                return -x if negative else x

    @staticmethod
    def _uniform(words: Iterator[int]) -> np.float32:
        return np.float32((next(words) >> 8) / 2**24)


@pytest.mark.parametrize("key", [(9101, 17, 4), (2**64 - 1, 2**64 - 1, 0)])
def test_normals_equal_a_written_out_generator_and_ziggurat(key: tuple[int, int, int]) -> None:
    """If a NumPy release changed the stream, every published draw would change: fail loudly."""
    seed, anchor, draw = key
    ziggurat, words = Ziggurat(), words32("gaussian_noise", seed, anchor, draw)
    expected = np.array([ziggurat.next(words) for _ in range(20_000)], np.float32)
    generator = draw_generator("gaussian_noise", seed=seed, anchor=anchor, draw=draw)
    found = standard_normals(generator, (20_000,), torch.device("cpu")).numpy()
    assert np.abs(expected).max() > Ziggurat.R  # the tail was visited
    np.testing.assert_array_max_ulp(found, expected, maxulp=1)  # log1p may round either way
    assert (found == expected).mean() > 0.999


def test_uniform_numbers_are_the_upper_53_bits_of_the_stream() -> None:
    words = words32("occlusion", 9101, 17, 4)
    generator = draw_generator("occlusion", seed=9101, anchor=17, draw=4)
    for _ in range(1000):
        low, high = next(words), next(words)
        assert generator.random() == (high << 21 | low >> 11) / 2**53


def test_normals_are_standard_normal() -> None:
    generator = draw_generator("gaussian_noise", seed=1, anchor=2, draw=3)
    normals = standard_normals(generator, (1_000_000,), torch.device("cpu")).double()
    assert abs(normals.mean().item()) < 5e-3  # five standard errors
    assert abs(normals.var().item() - 1) < 7.1e-3
    assert abs((normals**3).mean().item()) < 2e-2
    assert abs((normals**4).mean().item() - 3) < 5e-2
    for bound in (0.5, 1.0, 2.0, 3.0):
        inside = (normals.abs() < bound).double().mean().item()
        assert abs(inside - math.erf(bound / math.sqrt(2))) < 2.5e-3


def test_every_part_of_the_key_changes_the_draw() -> None:
    base = {"name": "gaussian_noise", "seed": 5, "anchor": 6, "draw": 7}
    other = {"name": "fog", "seed": 6, "anchor": 5, "draw": 6}
    draws = [base] + [{**base, part: other[part]} for part in base]
    states = {draw_generator(**d).standard_normal(8).tobytes() for d in draws}
    assert len(states) == 5


def test_draws_of_neighbouring_keys_are_uncorrelated() -> None:
    rows = np.stack(
        [
            draw_generator("gaussian_noise", seed=0, anchor=a, draw=d).standard_normal(20_000)
            for a in range(4)
            for d in range(4)
        ]
    )
    correlation = np.corrcoef(rows) - np.eye(16)
    assert np.abs(correlation).max() < 5 / math.sqrt(20_000)


@pytest.mark.parametrize("part", ["seed", "anchor", "draw"])
@pytest.mark.parametrize("value", [-1, 2**64])
def test_numbers_outside_uint64_are_refused(part: str, value: int) -> None:
    key = {"seed": 0, "anchor": 0, "draw": 0, part: value}
    with pytest.raises(InvalidArgument, match=f"{part}: is {value}"):
        draw_generator("gaussian_noise", **key)


PROGRAM = """
import hashlib, torch
from acpc.contract import *
from acpc_server.perturb import perturb_frames
torch.set_num_threads({threads})
frames = torch.linspace(-2, 2, 3 * 3 * 40 * 56).reshape(3, 3, 40, 56)
digest = hashlib.sha256()
for spec in (
    GaussianNoise(sigma=0.08), GaussianBlur(kernel_size=15), Resize(scale=0.25),
    Brightness(change=0.3), Contrast(change=-0.3), ColorJitter(strength=0.5), Jpeg(quality=20),
    Occlusion(size=0.3), RandomShift(pixels=4), DefocusBlur(radius=3.5),
    MotionBlur(length=9.0, angle=30.0),
):
    view = perturb_frames(frames, spec, seed=11, anchor=12, draw=3)
    digest.update(view.numpy().tobytes())
print(digest.hexdigest())
"""


@pytest.mark.process
def test_another_process_with_other_threads_draws_the_same_bits() -> None:
    outputs = {
        processes.run([sys.executable, "-c", PROGRAM.format(threads=threads)]).stdout
        for threads in (1, 3)
    }
    assert len(outputs) == 1


def test_a_longer_history_keeps_the_draw_of_its_first_frames() -> None:
    frames = torch.zeros(4, 3, 10, 10)
    spec = GaussianNoise(sigma=0.5)
    longer = perturb_frames(frames, spec, seed=1, anchor=2, draw=3)
    shorter = perturb_frames(frames[:2], spec, seed=1, anchor=2, draw=3)
    assert torch.equal(longer[:2], shorter)
