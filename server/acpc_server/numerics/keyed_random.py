"""Random numbers that depend only on a key: what they are for.

The sha256 of a domain, a few integers and a name is the key. So the numbers are the same in every
process, thread count, batch layout and order. Perturbations draw theirs where the frames are, from
Philox4x64-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011); pools and
probes, which are small, come from NumPy's SFC64 on the host. On a CPU the words of Philox are
NumPy's, in 3.6 ns each; a GPU computes them by a kernel of their own, as each of the generator's
hundred operations would be a launch. A word is an int64 with the bits of the unsigned word.

Torch's own CPU normals change with the vector instructions of the machine. NumPy promises the raw
stream of a bit generator for ever but may, with notice, change how normals are made of it; a test
compares them with a written-out generator and ziggurat, so such a change cannot pass unseen.
"""

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from acpc_server.errors import InvalidArgument

Key = tuple[int, int, int, int]
"""Four uint64: the two key words, and the upper two of the four counter words."""


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
    """Compute the words of blocks from ``first`` on, four a block, for every key, on a GPU.

    A key is one launch, and its words are arguments of the kernel: nothing waits.
    """
    counter = torch.arange(first, first + blocks, device=device)
    words = [w for key in keys for w in _philox()(counter, **_arguments(key))]
    return torch.stack(words).view(len(keys), 4, blocks).transpose(1, 2).flatten(1)


# One block for each element of a tensor of first counter words; the second is 0.
PHILOX = """template <typename T>
void philox(T block, T key0, T key1, T c2, T c3, T& w0, T& w1, T& w2, T& w3) {
  unsigned long long a = block, b = 0, c = c2, d = c3, k0 = key0, k1 = key1;
  for (int round = 0; round < 10; round++) {
    const unsigned long long high = __umul64hi(0xD2E7470EE14C6C93ull, a);
    const unsigned long long other = __umul64hi(0xCA5A826395121157ull, c);
    const unsigned long long low = a * 0xD2E7470EE14C6C93ull;
    a = other ^ b ^ k0;
    b = c * 0xCA5A826395121157ull;
    c = high ^ d ^ k1;
    d = low;
    k0 += 0x9E3779B97F4A7C15ull;
    k1 += 0xBB67AE8584CAA73Bull;
  }
  w0 = a; w1 = b; w2 = c; w3 = d;
}"""


@cache
def _philox() -> Callable[..., list[Tensor]]:
    """Return the kernel, which torch compiles with the runtime compiler of CUDA or ROCm."""
    words = dict.fromkeys(("key0", "key1", "c2", "c3"), 0)
    made: Callable[..., list[Tensor]] = torch.cuda.jiterator._create_multi_output_jit_fn(  # noqa: SLF001 - it has no other name
        PHILOX, 4, **words
    )
    return made


def _arguments(key: Key) -> dict[str, int]:
    """Return the words of a key as arguments: int64 with the bits of the unsigned words."""
    signed = [word - 2**64 if word >= 2**63 else word for word in key]
    return dict(zip(("key0", "key1", "c2", "c3"), signed, strict=True))
