"""Philox4x64-10, a counter-based generator: the same 64-bit words on every device.

J. K. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011). On a CPU the words are
NumPy's, in 3.6 ns each; elsewhere they are computed by integer tensor operations, which wrap around
2**64 as the generator wants. A word is an int64 with the bits of the unsigned word.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

Key = tuple[int, int, int, int]
"""Four uint64: the two key words, and the upper two of the four counter words."""

BLOCK_WORDS = 4
_ROUNDS = 10
_HALF = 2**32 - 1
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)


def host_philox(key: Key, *, first: int = 1, stream: int = 0) -> np.random.Philox:
    """NumPy's generator before block ``first``, at least 1; ``stream`` is the second counter word.

    NumPy counts up before it makes a block.
    """
    counter = np.array([first - 1, stream, *key[2:]], np.uint64)
    return np.random.Philox(key=np.array(key[:2], np.uint64), counter=counter)


def philox_words(
    keys: Sequence[Key], first: int, blocks: int, device: torch.device
) -> Int64[Tensor, "keys words"]:
    """The words of blocks ``first`` and following, four a block, for every key; nothing waits."""
    bits = torch.empty(len(keys), 4, 1, dtype=torch.int64, device=device)
    for place, word in zip(bits.flatten(), (word for key in keys for word in key), strict=True):
        place.fill_(_signed(word))  # an argument of a kernel: no copy to wait for
    k0, k1, c2, c3 = bits.unbind(1)  # (keys, 1) each
    c0 = torch.arange(first, first + blocks, device=device).unsqueeze(0)
    c1 = torch.zeros_like(c0)
    for _ in range(_ROUNDS):
        high0, low0 = _multiplied(c0, _MULTIPLIERS[0])
        high1, low1 = _multiplied(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _signed(_KEY_STEPS[0]), k1 + _signed(_KEY_STEPS[1])
    return torch.stack((c0, c1, c2, c3), dim=-1).flatten(1)


def _multiplied(words: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """Upper and lower word of the 128-bit product, from products of 32-bit halves."""
    upper, lower = factor >> 32, factor & _HALF
    w_low, w_high = words & _HALF, _high(words)
    middle = w_high * lower + _high(w_low * lower)  # below 2**64: no carry is lost
    other = w_low * upper + (middle & _HALF)
    return w_high * upper + _high(middle) + _high(other), words * _signed(factor)


def _high(words: Tensor) -> Tensor:
    """The upper half of each word; the shift of a signed integer keeps its sign."""
    return (words >> 32) & _HALF


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word
