"""Linear maps whose weights can be laid out for oneDNN's matrix products on the CPU.

oneDNN reads a packed weight faster than torch's default library a plain one, and takes bias, GELU
and a residual sum into the product. torch's own compiler emits these operators; they are no public
interface, so they are tried before they are used, and whoever lacks them computes as ever.
"""

from __future__ import annotations

from functools import cache

import structlog
import torch
from torch import Tensor, nn
from torch.nn import functional as F

log = structlog.get_logger("acpc.models")
# Multiplications of one product; below, the call of the operator costs more than it gains.
LEAST_WORK = 2**22
# Weights of one map; products with fewer seldom come to LEAST_WORK.
LEAST_WEIGHTS = 2**12
# Of the largest number of a product; in bfloat16 each input is off by up to 2^-9.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
# A block of a kernel's rows, and one that fills none.
TRIAL_ROWS = 65


class Linear(nn.Linear):
    """``nn.Linear`` that may hold its weight packed, too, for inference without derivatives.

    Whether a product uses it depends on shapes alone. Copies and pickles hold no packed weight.
    """

    _packed: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """``x`` (..., in) to (..., out)."""
        if (packed := self._packed_for(x)) is None:
            return F.linear(x, self.weight, self.bias)
        return _product(x, packed, self.bias, "none")

    def gelu(self, x: Tensor) -> Tensor:
        """The exact (erf) GELU of the outputs."""
        if (packed := self._packed_for(x)) is None:
            return F.gelu(F.linear(x, self.weight, self.bias))
        return _product(x, packed, self.bias, "gelu")

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """``residual + self(x)``; under autocast in the type of ``residual``."""
        packed = self._packed_for(x)
        kinds = {x.dtype, residual.dtype}
        if packed is None or kinds != {packed.dtype} or x.shape[:-1] != residual.shape[:-1]:
            added: Tensor = self(x)
            return residual + added
        out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, residual, packed, self.bias, "add"
        )
        return out

    def pack(self) -> int:
        """Hold the weight packed where that pays; bytes that it takes.

        Raises:
            ArithmeticError: Products of the packed weight differ from those of the plain one.
        """
        if self.weight.numel() < LEAST_WEIGHTS:
            return 0
        self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), None)
        self._compare()
        return self.weight.nbytes

    def __getstate__(self) -> dict[str, object]:
        """Without the packed weight, which only this process can read."""
        return {key: value for key, value in self.__dict__.items() if key != "_packed"}

    def _packed_for(self, x: Tensor) -> Tensor | None:
        return self._packed if x.numel() * self.out_features >= LEAST_WORK else None

    @torch.inference_mode()
    def _compare(self) -> None:
        """Every kind of product beside the plain one, with enough rows for the packed weight."""
        kind = self.weight.dtype
        rows = max(TRIAL_ROWS, LEAST_WORK // self.weight.numel() + 1)
        x, residual = (
            torch.linspace(-1, 1, rows * n).sin_().mul_(1e3).sin_().reshape(rows, n).to(kind)
            for n in (self.in_features, self.out_features)
        )
        plain = F.linear(x, self.weight, self.bias)
        for found, wanted in (
            (self(x), plain),
            (self.gelu(x), F.gelu(plain)),
            (self.plus(x, residual), residual + plain),
        ):
            scale = float(plain.abs().max().clamp_min(1e-30))
            apart = float((found - wanted).abs().max()) / scale
            if not apart <= TOLERANCES[kind]:
                raise ArithmeticError(f"packed products are off by {apart:.1e} in {kind}")


def pack(network: nn.Module) -> int:
    """Have every linear map of a network on the CPU hold its weight packed; bytes they take.

    0 where one of them cannot be trusted; then none is packed, here or by later calls.
    """
    maps = [module for module in network.modules() if isinstance(module, Linear)]
    if not all(packs(kind) for kind in {x.weight.dtype for x in maps}):
        return 0
    try:
        return sum(x.pack() for x in maps)
    except (ArithmeticError, RuntimeError) as error:
        _turn_off(error)
        for x in maps:
            x._packed = None
        return 0


@cache
def packs(kind: torch.dtype) -> bool:
    """Whether this process packs weights of a type: torch has the operators and they are right."""
    if _OFF or kind not in TOLERANCES:
        return False
    try:
        with torch.random.fork_rng(devices=[]):
            trial = Linear(192, 256, dtype=kind)
        trial.pack()
    except (ArithmeticError, AttributeError, RuntimeError) as error:
        log.info("products_not_packed", type=str(kind), why=str(error))
        return False
    return True


_OFF: list[str] = []


def _turn_off(error: Exception) -> None:
    _OFF.append(str(error))
    packs.cache_clear()
    log.error("packed_products_turned_off", why=str(error))


def _product(x: Tensor, packed: Tensor, bias: Tensor | None, then: str) -> Tensor:
    exact = "none" if then == "gelu" else ""  # not the approximation by tanh
    out: Tensor = torch.ops.mkldnn._linear_pointwise(
        x.to(packed.dtype), packed, bias, then, [], exact
    )
    return out
