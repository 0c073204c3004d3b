"""A model family whose device fails on command: a file says how, from the next call on."""

import os
import time
from pathlib import Path
from typing import Any

import torch
from acpc_server.models import CheckpointLimits, FrozenWorldModel
from acpc_server.models.config import JsonObject
from acpc_server.models.families import FAMILIES
from acpc_server.models.weights import StateReader
from torch import Tensor
from torch.nn import functional as F

TARGET = "acpc_faulty.Model"
POISON = "CUDA error: an illegal memory access was encountered"


class Faulty:
    """A JEPA that looks at the file ``ACPC_TEST_FAULT`` before it encodes."""

    def __init__(self, inner: FrozenWorldModel) -> None:
        self._inner, self._calls, self._told = inner, 0, ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def encode(self, frames: Tensor) -> Tensor:
        self._calls += 1
        fault = self._now()
        if fault == "poison":
            raise RuntimeError(POISON)
        if fault == "nan":
            break_products()
        while fault == "hang":
            Path(f"{os.environ['ACPC_TEST_FAULT']}.hangs").touch()
            time.sleep(0.1)
            fault = self._now()
        return self._inner.encode(frames)

    def _now(self) -> str:
        """The fault of this call; ``hang 5`` is that of the fifth since it was injected."""
        path = Path(os.environ["ACPC_TEST_FAULT"])
        told = path.read_text().strip() if path.exists() else ""
        if told != self._told:
            self._told, self._calls = told, 1
        fault, _, first = told.partition(" ")
        return fault if self._calls >= int(first or 0) else ""


def break_products() -> None:
    """Have products of the process come out as NaN, as on a broken device."""
    for name in ("conv2d", "linear"):
        right = getattr(F, name)
        setattr(F, name, lambda *given, right=right: right(*given) * torch.nan)


class FaultyFamily:
    name = "faulty"
    targets = frozenset({TARGET})

    def build(
        self,
        config: JsonObject,
        state: StateReader,
        *,
        device: torch.device,
        limits: CheckpointLimits,
    ) -> FrozenWorldModel:
        target = min(FAMILIES[0].targets)
        tree = {**config, "_target_": target}
        made = FAMILIES[0].build(tree, state, device=device, limits=limits)
        return Faulty(made)


FAMILY = FaultyFamily()
