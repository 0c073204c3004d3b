"""Linear maps whose weights can be laid out for oneDNN's matrix products on the CPU.

oneDNN reads a packed weight faster than torch's default library a plain one, and takes bias, GELU
and a residual sum into the product. torch's own compiler emits these operators; they are not public
(``torch.utils.mkldnn``, which is, is up to a fourth slower and takes in neither GELU nor sum), so
they are tried before they are used, and products are computed plain without them. The outcome
depends on processor, torch and shape alone: no checkpoint changes the numbers of another.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from functools import cache

import structlog
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from acpc_server.errors import shortage

log = structlog.get_logger("acpc.models")
# Multiplications of one product; below, the call of the operator costs more than it gains.
LEAST_WORK = 2**22
# Weights of one map; products with fewer seldom come to LEAST_WORK.
LEAST_WEIGHTS = 2**12
# Of the largest number of a row of products; in bfloat16 each input is off by up to 2^-9.
PACKED_TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
# A block of a kernel's rows, and one that fills none.
TRIAL_ROWS = 65
# In and out of maps that are tried before any is packed; the second fills no block of a kernel.
FIRST_TRIED = ((192, 256), (131, 197))


@dataclass(frozen=True)
class Shape:
    """All but the rows that decides which code multiplies a map's packed weight."""

    inner: int
    outer: int
    bias: bool
    kind: torch.dtype


@dataclass(frozen=True)
class TrialErrors:
    """Errors of packed products of one shape, relative to the largest number of a row.

    Attributes:
        apart: Largest difference from plain products; None where torch cannot compute them.
        exact: Largest difference from products in float64, or None.
        why: Why they are not used; empty where they are.
    """

    apart: float | None
    exact: float | None
    why: str


class Linear(nn.Linear):
    """``nn.Linear`` that may hold its weight packed, too, for inference without derivatives.

    Whether a product uses it depends on shapes alone. Copies and pickles drop the packed weight.
    """

    _packed: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """``x`` (..., in) to (..., out)."""
        if (packed := self._packed_for(x)) is None:
            return F.linear(x, self.weight, self.bias)
        return _product(x, packed, self.bias, "none")

    def gelu(self, x: Tensor) -> Tensor:
        """The exact (erf) GELU of the outputs."""
        packed = self._packed_for(x)
        if packed is None or not takes_in_gelu():
            return F.gelu(self.forward(x))
        return _product(x, packed, self.bias, "gelu")

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """``residual + self(x)``; under autocast in the type of ``residual``."""
        packed = self._packed_for(x)
        kinds = {x.dtype, residual.dtype}
        if packed is None or kinds != {packed.dtype} or x.shape[:-1] != residual.shape[:-1]:
            added: Tensor = self(x)
            return residual + added
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual, packed, self.bias, "add")

    def pack(self) -> int:
        """Pack the weight where that pays and is right; return the bytes that it takes.

        Raises the RuntimeError of torch for want of memory.
        """
        kind = self.weight.dtype
        shape = Shape(self.in_features, self.out_features, self.bias is not None, kind)
        if self.weight.numel() < LEAST_WEIGHTS or not packs(kind) or _tried(shape).why:
            return 0
        self._hold()
        return self.weight.nbytes

    def __getstate__(self) -> dict[str, object]:
        """Leave out the packed weight, which no other process can read."""
        return {key: value for key, value in self.__dict__.items() if key != "_packed"}

    def _hold(self) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), None)

    def _packed_for(self, x: Tensor) -> Tensor | None:
        return self._packed if x.numel() * self.out_features >= LEAST_WORK else None


def pack(network: nn.Module) -> int:
    """Pack the linear maps of a network on the CPU; return the bytes that they take."""
    return sum(x.pack() for x in network.modules() if isinstance(x, Linear))


@cache
def takes_in_gelu() -> bool:
    """Return whether a product takes in its GELU, which is slower with oneDNN's AVX2 kernels."""
    return "AVX512" in torch.backends.cpu.get_cpu_capability()


def packs(kind: torch.dtype) -> bool:
    """Return whether torch has the operators for a type and they are right."""
    if kind not in PACKED_TOLERANCES:
        return False
    return not any(_tried(Shape(*sizes, True, kind)).why for sizes in FIRST_TRIED)


def tried_products(kind: torch.dtype) -> list[TrialErrors]:
    """Errors of every shape of packed product that this process has tried in a type."""
    return [tried for shape, tried in list(_TRIED.items()) if shape.kind is kind]


def wrong_products(kind: torch.dtype) -> int:
    """Count the shapes that are computed plain because packed products were wrong."""
    return sum(bool(x.why) and x.apart is not None for x in tried_products(kind))


_TRIED: dict[Shape, TrialErrors] = {}
_TRYING = threading.Lock()


def _tried(shape: Shape) -> TrialErrors:
    """Try products of a shape, once a process, and so the same for every checkpoint."""
    with _TRYING:
        if shape not in _TRIED:
            try:
                with torch.autocast("cpu", enabled=False):  # whoever asks
                    found = _compare(shape)
                if found.why:
                    log.error("packed_products_turned_off", shape=str(shape), why=found.why)
            except (AttributeError, RuntimeError) as error:
                # oneDNN's message names a descriptor where it has no such product.
                if shortage(error) and "descriptor" not in str(error):
                    raise  # not the product's fault
                found = TrialErrors(None, None, str(error) or "no operator")
                log.info("products_not_packed", shape=str(shape), why=found.why)
            _TRIED[shape] = found
        return _TRIED[shape]


@torch.inference_mode()
def _compare(shape: Shape) -> TrialErrors:
    """Compare every kind of product with the plain one, for rows of many sizes."""
    generator, tolerance = torch.Generator().manual_seed(1), PACKED_TOLERANCES[shape.kind]

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    sizes = shape.inner, shape.outer, shape.bias  # not drawn from the process's generator
    map_ = Linear(*sizes, device="meta", dtype=shape.kind).to_empty(device="cpu")
    map_.weight.copy_(normal(shape.outer, shape.inner) / shape.inner**0.5)
    if map_.bias is not None:
        map_.bias.copy_(normal(shape.outer))
    plain, exact = copy.deepcopy(map_), copy.deepcopy(map_).double()
    map_._hold()
    least = max(TRIAL_ROWS, LEAST_WORK // (shape.inner * shape.outer) + 1)
    worst = torch.zeros(2, dtype=torch.float64)
    for rows in (least, 4 * least + 3):
        size = torch.logspace(-3, 3, rows)[:, None]
        x = (normal(rows, shape.inner) * size).to(shape.kind)
        residual = (normal(rows, shape.outer) * size).to(shape.kind)
        found, wanted, right = (
            torch.stack([m(y), m.gelu(y), m.plus(y, r)]).double()
            for m, y, r in (
                (map_, x, residual),
                (plain, x, residual),
                (exact, x.double(), residual.double()),
            )
        )
        largest = right.abs().amax(-1, keepdim=True)[[0, 0, 2]]  # GELU may make all small
        differ = [((found - y).abs() / largest).max() for y in (wanted, right)]
        worst = torch.maximum(worst, torch.stack(differ))
    apart, off = worst.tolist()
    good = apart <= tolerance  # NaN is not
    return TrialErrors(apart, off, "" if good else f"packed products are off by {apart:.1e}")


def _product(x: Tensor, packed: Tensor, bias: Tensor | None, then: str) -> Tensor:
    exact = "none" if then == "gelu" else ""  # not the approximation by tanh
    return torch.ops.mkldnn._linear_pointwise(x.to(packed.dtype), packed, bias, then, [], exact)
