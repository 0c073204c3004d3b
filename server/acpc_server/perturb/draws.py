"""The random numbers of a perturbation's views, made where the frames are."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Float64
from torch import Tensor

from acpc_server.numerics import host_philox, key_words, normals_from, philox_words

DRAW_FORMAT = 2
"""How draws are made of their keys; digests of perturbations hold it."""

_BLOCK_VALUES = 8  # a block is four words of two halves
_CHUNK = 2**15  # values made at a time on a CPU, whose second-level cache holds them
_PLUG_IN_STREAM = 1


class DrawKey(NamedTuple):
    """The key of a draw beside its kind: three uint64.

    All severities of one kind share their numbers (common random numbers), so that differences
    between severities carry no extra sampling noise.
    """

    seed: int
    anchor: int
    draw: int


class Draws(np.random.Generator):
    """The random numbers of a perturbation ``name`` for one view or several, one key each.

    :meth:`normals` and :meth:`uniforms` make tensors on the frames' device, with the same bits on
    every device. It is a NumPy generator too: an independent stream of its first view, on the host.
    Raises InvalidArgument where a number of a key is not a uint64.
    """

    def __init__(self, name: str, keys: Sequence[DrawKey], device: torch.device) -> None:
        domain = f"acpc/draw/{DRAW_FORMAT}\0".encode()
        self._keys = [key_words(domain, key._asdict(), name) for key in keys]
        self._device = device
        self._next_block = 1
        self.views = len(keys)
        super().__init__(host_philox(self._keys[0], stream=_PLUG_IN_STREAM))

    def normals(self, shape: Sequence[int]) -> Float32[Tensor, "..."]:
        """Draw standard normals in C order; the first axis of ``shape`` is split over the views."""
        first, count = self._take(math.prod(shape) // self.views)
        if self._device.type != "cpu":
            return normals_from(self._bits(first, count).flatten()).view(*shape)
        out = torch.empty(self.views, count)
        together = max(1, _CHUNK // max(1, count))
        for start in range(0, self.views, together):
            rows = slice(start, start + together)
            words = [host_philox(key, first=first) for key in self._keys[rows]]
            for part in torch.split(out[rows], _CHUNK, dim=1):
                size = part.shape[1]
                raw = np.stack([one.random_raw(-(-size // 2)) for one in words]).view(np.int32)
                normals_from(torch.from_numpy(raw[:, :size]).flatten(), out=part.view(-1))
        return out.view(*shape)

    def uniforms(self, shape: Sequence[int]) -> Float32[Tensor, "..."]:
        """Draw uniform multiples of 2**-24 in [0, 1), in the order of :meth:`normals`."""
        first, count = self._take(math.prod(shape) // self.views)
        upper = (self._bits(first, count) >> 8) & (2**24 - 1)
        return (upper.float() * 2.0**-24).reshape(*shape)

    def numbers(self, count: int) -> Float64[np.ndarray, "views count"]:
        """Draw a few uniform multiples of 2**-53 in [0, 1) for every view, on the host."""
        first, _ = self._take(2 * count)
        raw = np.stack([host_philox(key, first=first).random_raw(count) for key in self._keys])
        return (raw >> np.uint64(11)) * 2.0**-53

    def each(self, frames: Tensor, count: int) -> Iterator[tuple[Tensor, list[float]]]:
        """Yield the frames of view after view, each with so many :meth:`numbers`."""
        parts = torch.split(frames, len(frames) // self.views)
        return zip(parts, self.numbers(count).tolist(), strict=True)

    def _take(self, count: int) -> tuple[int, int]:
        """Reserve ``count`` 32-bit values; return their first block, and ``count``."""
        first, self._next_block = self._next_block, self._next_block + -(-count // _BLOCK_VALUES)
        return first, count

    def _bits(self, first: int, count: int) -> Tensor:
        """(views, count) int32, the lower half of each word first."""
        blocks = -(-count // _BLOCK_VALUES)
        if self._device.type == "cpu":
            raw = [host_philox(key, first=first).random_raw(4 * blocks) for key in self._keys]
            return torch.from_numpy(np.stack(raw).view(np.int32))[:, :count]
        return philox_words(self._keys, first, blocks, self._device).view(torch.int32)[:, :count]
