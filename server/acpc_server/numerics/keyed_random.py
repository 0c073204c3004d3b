"""Random numbers that depend only on a key: what they are for.

The sha256 of a domain, a few integers and a name is the key. So the numbers are the same in every
process, thread count, batch layout and order. Perturbations draw theirs where the frames are, from
Philox4x64-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011); pools and
probes, which are small, come from NumPy's SFC64 on the host. On a CPU the words of Philox are
NumPy's, in 3.6 ns each; elsewhere they are computed by integer tensor operations, which wrap around
2**64 as the generator wants. A word is an int64 with the bits of the unsigned word.

Torch's own CPU normals change with the vector instructions of the machine. NumPy promises the raw
stream of a bit generator for ever but may, with notice, change how normals are made of it; a test
compares them with a written-out generator and ziggurat, so such a change cannot pass unseen.
"""

import hashlib
import struct
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from acpc_server.errors import InvalidArgument

Key = tuple[int, int, int, int]
"""Four uint64: the two key words, and the upper two of the four counter words."""

_ROUNDS = 10
_HALF = 2**32 - 1
_MULTIPLIERS = (0xCA5A826395121157, 0xD2E7470EE14C6C93)  # of words 2 and 0
_KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)


def key_words(domain: bytes, numbers: Mapping[str, int], name: str = "") -> Key:
    """Return the four uint64 words of a key; InvalidArgument where a number is not a uint64.

    ``domain`` says what the numbers are for, ends with a zero byte, and no two uses share one.
    """
    for field, value in numbers.items():
        if not 0 <= value < 2**64:
            raise InvalidArgument(field, f"is {value}; give an integer from 0 to 2**64 - 1")
    packed = struct.pack(f"<{len(numbers)}Q", *numbers.values())
    digest = hashlib.sha256(domain + packed + name.encode()).digest()
    a, b, c, d = struct.unpack("<4Q", digest)
    return a, b, c, d


def keyed_generator(
    domain: bytes, numbers: Mapping[str, int], name: str = ""
) -> np.random.Generator:
    """Return NumPy's SFC64 generator with a key as its state; raises as ``key_words``."""
    state = np.array(key_words(domain, numbers, name), np.uint64)
    bits = np.random.SFC64(0)
    bits.state = {
        "bit_generator": "SFC64",
        "state": {"state": state},
        "has_uint32": 0,
        "uinteger": 0,
    }
    return np.random.Generator(bits)


def host_philox(key: Key, *, first: int = 1, stream: int = 0) -> np.random.Philox:
    """Return NumPy's generator before block ``first``, at least 1.

    NumPy counts up before it makes a block; ``stream`` is the second counter word.
    """
    counter = np.array([first - 1, stream, *key[2:]], np.uint64)
    return np.random.Philox(key=np.array(key[:2], np.uint64), counter=counter)


def philox_words(
    keys: Sequence[Key], first: int, blocks: int, device: torch.device
) -> Int64[Tensor, "keys words"]:
    """Compute the words of blocks from ``first`` on, four a block, for every key; nothing waits."""
    bits = _sent([word for key in keys for word in key], device).view(-1, 4, 1)
    key, last = bits[:, :2], bits[:, 2:]  # key words, upper two counter words: (keys, 2, 1)
    factor, step = (_sent(words, device).view(2, 1) for words in (_MULTIPLIERS, _KEY_STEPS))
    factors = factor, factor & _HALF, _high(factor)  # and its halves
    counter = torch.arange(first, first + blocks, device=device).expand(len(keys), 1, -1)
    even = torch.cat((counter, last[:, :1].expand_as(counter)), dim=1)  # words 0, 2 of a block
    odd = torch.cat((torch.zeros_like(last[:, :1]), last[:, 1:]), dim=1)  # words 1, 3
    for _ in range(_ROUNDS):
        high, low = _multiplied(even.flip(1), *factors)
        even, odd, key = high ^ odd ^ key, low, key + step
    return torch.stack((even, odd), dim=2).flatten(1, 2).transpose(1, 2).flatten(1)


def _sent(words: Sequence[int], device: torch.device) -> Int64[Tensor, "words"]:
    """Bring words to a device as arguments of kernels: no copy to wait for."""
    there = torch.empty(len(words), dtype=torch.int64, device=device)
    for place, word in zip(there, words, strict=True):
        place.fill_(word - 2**64 if word >= 2**63 else word)
    return there


def _multiplied(
    words: Tensor, factor: Tensor, lower: Tensor, upper: Tensor
) -> tuple[Tensor, Tensor]:
    """Multiply to 128 bits, by 32-bit halves; return the upper and lower word."""
    w_low, w_high = words & _HALF, _high(words)
    middle = w_high * lower + _high(w_low * lower)  # below 2**64: no carry is lost
    other = w_low * upper + (middle & _HALF)
    return w_high * upper + _high(middle) + _high(other), words * factor


def _high(words: Tensor) -> Tensor:
    """Return the upper half of each word; the shift of a signed integer keeps its sign."""
    return (words >> 32) & _HALF
