"""Random numbers that depend only on a key: what they are for.

The sha256 of a domain, a few integers and a name is the key. So the numbers are the same in every
process, thread count, batch layout and order. Perturbations draw theirs where the frames are, from
Philox (``philox.py``); pools and probes, which are small, come from NumPy's SFC64 on the host.

Torch's own CPU normals change with the vector instructions of the machine. NumPy promises the raw
stream of a bit generator for ever but may, with notice, change how normals are made of it; a test
compares them with a written-out generator and ziggurat, so such a change cannot pass unseen.
"""

import hashlib
import struct
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from acpc_server.errors import InvalidArgument
from acpc_server.numerics.philox import Key


def key_words(domain: bytes, numbers: Mapping[str, int], name: str = "") -> Key:
    """The four uint64 words of one key; InvalidArgument where a number is not a uint64.

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
    """NumPy's generator of one key, SFC64 with the key as its state; raises as ``key_words``."""
    state = np.array(key_words(domain, numbers, name), np.uint64)
    bits = np.random.SFC64(0)
    bits.state = {
        "bit_generator": "SFC64",
        "state": {"state": state},
        "has_uint32": 0,
        "uinteger": 0,
    }
    return np.random.Generator(bits)


def standard_normals(
    generator: np.random.Generator, shape: Sequence[int], device: torch.device
) -> Float[Tensor, "..."]:
    """Float32 standard normals, drawn on the CPU in C order and moved to ``device``."""
    normals = np.empty(tuple(shape), np.float32)
    generator.standard_normal(dtype=np.float32, out=normals)
    return torch.from_numpy(normals).to(device)
