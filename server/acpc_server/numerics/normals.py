"""Float32 standard normals from 32 random bits each: the same bits on every device.

The inverse of the normal distribution function, piecewise linear. The top bit is the sign; the
other 31, m, are the two-sided tail probability p = (m + 1/2) / 2**31. The float32 x = m + 1/2
names its own piece: exponent and upper mantissa bits are the index of one of 1024 pieces an octave,
so that pieces get finer towards the tail, down to single values of m. There the normal is a + b x.

Conversion, addition and multiplication round as IEEE 754 says, each an operation of its own that
no compiler may fuse with the next, and the table is made without a logarithm of the platform. So
much is by construction, not yet confirmed on a card: ``test_device_agreement.py`` compares views.

Values lie within 2.5e-7 + 1e-7 |z| of the exact inverse and at most 6.34 from 0 (a normal is
beyond that once in 4e9). Around 0 they are multiples of 1.2e-7.
"""

from collections.abc import Sequence

import numpy as np
import torch
from acpc.arrays import NDArray
from jaxtyping import Float32, Float64, Int32
from torch import Tensor

PIECE_BITS = 10
_SHIFT = 23 - PIECE_BITS
_FIRST = 126 << PIECE_BITS  # of x = 0.5
_LAST = 158 << PIECE_BITS  # of x = 2**31, to which the largest m round
_MAGNITUDE, _SIGN = 2**31 - 1, -(2**31)

# M. J. Wichura, algorithm AS 241 (PPND16): numerators and denominators, lowest power first.
_CENTRE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
     1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
     3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
     5.2264952788528545610e3),
)  # fmt: skip
_TAIL = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
     3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
     2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
     1.05075007164441684324e-9),
)  # fmt: skip


def normals_from(
    bits: Int32[Tensor, "n"], out: Float32[Tensor, "n"] | None = None
) -> Float32[Tensor, "n"]:
    """Make a standard normal of every 32 random bits, on their device."""
    offsets, slopes = _table_on(bits.device)
    x = (bits & _MAGNITUDE).float().add_(0.5)
    piece = (x.view(torch.int32) >> _SHIFT).sub_(_FIRST)
    out = torch.index_select(offsets, 0, piece, out=out)
    out.add_(torch.index_select(slopes, 0, piece).mul_(x))
    torch.bitwise_and(bits, _SIGN, out=piece)
    out.view(torch.int32).bitwise_xor_(piece)
    return out


def upper_quantile(tail: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n"]:
    """Return where the standard normal has so much above it, for 1e-11 to 0.5, to 1e-14.

    In operations that every platform rounds alike.
    """
    from_half = 0.5 - tail
    centre = from_half * _ratio(_CENTRE, 0.180625 - from_half * from_half)
    return np.where(from_half <= 0.425, centre, _ratio(_TAIL, np.sqrt(-_log(tail)) - 1.6))


def _table() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return offset and slope of every piece."""
    codes = np.arange(_FIRST, _LAST + 1, dtype=np.int32) << _SHIFT
    x = codes.view(np.float32).astype(np.float64)
    normal = upper_quantile(x / 2**32)
    slopes = np.diff(normal) / np.diff(x)
    slopes = np.append(slopes, slopes[-1])
    return (normal - slopes * x).astype(np.float32), slopes.astype(np.float32)


def _ratio(
    powers: tuple[Sequence[float], Sequence[float]], x: NDArray[np.float64]
) -> NDArray[np.float64]:
    over, under = np.zeros_like(x), np.zeros_like(x)
    for a, b in zip(*map(reversed, powers), strict=True):
        over, under = over * x + a, under * x + b
    quotient: NDArray[np.float64] = over / under
    return quotient


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    mantissa, exponent = np.frexp(x)
    s: NDArray[np.float64] = (mantissa - 1) / (mantissa + 1)
    total: NDArray[np.float64] = np.zeros_like(x)
    for power in range(45, 0, -2):  # 2 atanh(s); |s| is at most 1/3
        total = total * (s * s) + 2.0 / power
    return total * s + exponent * 0.6931471805599453


_TABLE = _table()
_ON_DEVICE: dict[torch.device, tuple[Tensor, Tensor]] = {}


def _table_on(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the table, copied to each device once."""
    if device in _ON_DEVICE:
        return _ON_DEVICE[device]
    offsets, slopes = (torch.tensor(values, device=device) for values in _TABLE)
    if type(offsets) is Tensor:  # a traced or pretended one must not outlive its trace
        _ON_DEVICE[device] = offsets, slopes
    return offsets, slopes
