"""A draw depends on its key alone, and its numbers are what the documentation says."""

import ctypes
import hashlib
import itertools
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist

import numpy as np
import processes
import pytest
import torch
from acpc.contract import KINDS, VisualChange, example, parse
from acpc_server.numerics import normals_from
from acpc_server.numerics.keyed_random import PHILOX
from acpc_server.perturb import DrawKey, Draws, perturb_frames, perturb_histories
from programs import required

MASK = 2**64 - 1
CPU = torch.device("cpu")


def key_words(name: str, seed: int, anchor: int, draw: int) -> tuple[int, ...]:
    """The documented key of a draw of format 2."""
    text = b"acpc/draw/2\0" + struct.pack("<QQQ", seed, anchor, draw) + name.encode()
    return struct.unpack("<4Q", hashlib.sha256(text).digest())


def philox(counter: int, k0: int, k1: int, c2: int, c3: int) -> np.random.Philox:
    """NumPy's Philox4x64-10, which counts up before each block."""
    return np.random.Philox(counter=counter + (c2 << 128) + (c3 << 192), key=k0 + (k1 << 64))


def words64(name: str, seed: int, anchor: int, draw: int) -> Iterator[int]:
    k0, k1, c2, c3 = key_words(name, seed, anchor, draw)
    generator = philox(0, k0, k1, c2, c3)
    while True:
        yield generator.random_raw()


def draws(name: str = "gaussian_noise", seed: int = 1, anchor: int = 2, draw: int = 3) -> Draws:
    return Draws(name, [DrawKey(seed, anchor, draw)], CPU)


# What the runtime compiler of a GPU has, for the compiler of a processor.
HOST = """
typedef unsigned long long word;
inline word __umul64hi(word a, word b) { return (word)(((unsigned __int128)a * b) >> 64); }
%s
extern "C" void words(long long first, int blocks, const long long* key, long long* out) {
  for (int i = 0; i < blocks; i++, out += 4)
    philox<long long>(first + i, key[0], key[1], key[2], key[3], out[0], out[1], out[2], out[3]);
}
"""


@pytest.mark.process
@pytest.mark.skipif(shutil.which("g++") is None and not required("g++"), reason="no g++")
def test_a_devices_kernel_computes_the_generator(tmp_path: Path) -> None:
    """Compiled for a processor; with a carry out of every half."""
    (tmp_path / "words.cpp").write_text(HOST % PHILOX)
    processes.run(["g++", "-O1", "-shared", "-fPIC", "-o", "words.so", "words.cpp"], cwd=tmp_path)
    library = ctypes.CDLL(str(tmp_path / "words.so"))
    blocks, first = 6, 2**32 - 2
    for key in [(1, 2, 3, 4), (MASK, 2**63, MASK, 2**32 - 1), (0, 0, 0, 0)]:
        found = (ctypes.c_uint64 * (4 * blocks))()
        library.words(ctypes.c_longlong(first), blocks, (ctypes.c_uint64 * 4)(*key), found)
        assert [*found] == philox(first - 1, *key).random_raw(4 * blocks).tolist()


def halves_of(words: Iterator[int], count: int) -> list[int]:
    return [half for _ in range(count) for w in [next(words)] for half in (w & 0xFFFFFFFF, w >> 32)]


def exact_normal(half: int) -> float:
    """The inverse distribution function in float64, from Python's own implementation."""
    tail = ((half & 0x7FFFFFFF) + 0.5) / 2**32
    return (-1 if half >> 31 else 1) * -NormalDist().inv_cdf(tail)


def test_the_ends_of_the_distribution_and_of_every_piece() -> None:
    """M next to every power of two and to the first steps of every octave, with either sign."""
    steps = [2**e + offset for e in range(31) for offset in (-2, -1, 0, 1, 2, 2**e // 1024)]
    halves = np.array([m | sign for m in {*steps, 0, 2**31 - 1} if 0 <= m < 2**31
                       for sign in (0, 2**31)], np.uint32)  # fmt: skip
    found = normals_from(torch.from_numpy(halves.view(np.int32))).double().numpy()
    expected = np.array([exact_normal(int(half)) for half in halves])
    assert (np.abs(found - expected) <= 2.5e-7 + 1e-7 * np.abs(expected)).all()
    assert 6.33 < np.abs(found).max() < 6.34


def test_normals_are_these_bits_on_every_machine() -> None:
    """A fused multiply-add, a logarithm of the platform or another table would change them."""
    found = draws("gaussian_noise", 9101, 17, 4).normals((300_001,)).numpy()
    assert found.dtype == np.float32
    assert hashlib.sha256(found.astype("<f4").tobytes()).hexdigest() == GOLDEN
    exact = [exact_normal(half) for half in halves_of(words64("gaussian_noise", 9101, 17, 4), 500)]
    np.testing.assert_allclose(found[:1000], exact, rtol=1e-7, atol=2.5e-7)


GOLDEN = "37071ba7cb6d7d0099d6c7c311c0307de133cbfd30e1aa8de0643ae72cbe8e95"


def test_views_together_have_the_bits_of_each_alone() -> None:
    keys = [DrawKey(1, anchor, draw) for anchor in range(2) for draw in range(2)]
    shape, together = (3, 5, 7), Draws("gaussian_noise", keys, CPU)
    for view, key in zip(together.normals((12, 5, 7)).view(4, *shape), keys, strict=True):
        assert torch.equal(view, Draws("gaussian_noise", [key], CPU).normals(shape))


def test_uniform_numbers_are_upper_bits_of_the_words() -> None:
    words = words64("occlusion", 9101, 17, 4)
    numbers = draws("occlusion", 9101, 17, 4).numbers(1000)[0]
    assert numbers.tolist() == [(next(words) >> 11) / 2**53 for _ in range(1000)]
    words = words64("occlusion", 9101, 17, 4)
    halves = halves_of(words, 50)
    uniforms = draws("occlusion", 9101, 17, 4).uniforms((4, 25))
    assert uniforms.flatten().tolist() == [(half >> 8) / 2**24 for half in halves]


def test_each_request_for_numbers_takes_others() -> None:
    one = draws()
    first, second = one.normals((11,)), one.normals((11,))
    assert torch.equal(second, draws().normals((27,))[16:])  # from the next block of eight
    assert not torch.equal(first, second)
    plug_in = one.standard_normal(4)
    assert np.array_equal(plug_in, draws().standard_normal(4))


def test_a_plug_ins_own_stream_has_none_of_the_words_of_the_draw() -> None:
    own = draws().bit_generator.random_raw(400)
    assert not {*own.tolist()} & {*itertools.islice(words64("gaussian_noise", 1, 2, 3), 4000)}


FITTED = ("gaussian_blur", "random_shift")  # to the frames below
APART = ("registered", "composition", "given_views")
DRAWN = tuple(example(cls) for kind, cls in KINDS.items() if kind not in APART)
SPECS = [parse(text) for text in DRAWN if text.partition(":")[0] not in FITTED] + [
    parse("gaussian_blur:5"), parse("random_shift:3"),
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_view_has_the_bits_that_it_has_alone(spec: VisualChange, dtype: torch.dtype) -> None:
    """Many histories, with other seeds, anchors and draws, in one go."""
    generator = torch.Generator().manual_seed(0)
    histories = [torch.randn(2, 3, 24, 40, generator=generator).to(dtype) for _ in range(5)]
    keys = [DrawKey(seed, 9 - seed, seed % 2) for seed in range(5)]
    together = perturb_histories(histories, spec, keys)
    for view, history, key in zip(together, histories, keys, strict=True):
        alone = perturb_frames(history, spec, seed=key.seed, anchor=key.anchor, draw=key.draw)
        assert torch.equal(view, alone) and view.dtype is dtype


PROGRAM = """
import hashlib, sys, torch
from acpc.contract import *
from acpc_server.perturb import perturb_frames
torch.set_num_threads({threads})
frames = torch.linspace(-2, 2, 3 * 3 * 40 * 56).reshape(3, 3, 40, 56)
specs, before, digest = [*map(parse, {drawn})], set(sys.modules), hashlib.sha256()
for spec in specs:
    view = perturb_frames(frames, spec, seed=11, anchor=12, draw=3)
    digest.update(view.numpy().tobytes())
print(digest.hexdigest(), *sorted(set(sys.modules) - before))
"""


@pytest.mark.process
def test_another_process_with_other_threads_draws_the_same_bits_and_loads_nothing() -> None:
    """The device's thread draws, too, and all others wait for what it would import."""
    codes = [[sys.executable, "-c", PROGRAM.format(threads=n, drawn=DRAWN)] for n in (1, 3)]
    outputs = {processes.run(code, imported="acpc-server").stdout for code in codes}
    (output,) = outputs
    assert len(output.split()) == 1
