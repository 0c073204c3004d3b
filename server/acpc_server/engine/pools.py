"""Rollouts of candidate pools as computations that a fast path may stand in for."""

from __future__ import annotations

from functools import partial
from typing import Protocol, runtime_checkable

import torch
from acpc.contract import NumericMode
from torch import Tensor, nn

from acpc_server.engine.fast_paths import Computation
from acpc_server.models import FrozenWorldModel, rollout_pool

TOLERANCE = 1e-5


@runtime_checkable
class HasNetwork(Protocol):
    """A frozen model that shows the network behind it."""

    @property
    def network(self) -> nn.Module:
        """All weights that a rollout reads."""
        ...


class PoolModule(nn.Module):
    """``rollout_pool`` as a module, which is what a compiler takes."""

    def __init__(self, model: FrozenWorldModel, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self._model = model

    def forward(self, histories: Tensor, past: Tensor, pools: Tensor) -> Tensor:
        """Predictions, (v, j, horizon, dim)."""
        return rollout_pool(self._model, histories, past, pools)


def pool_computation(
    model: FrozenWorldModel, mode: NumericMode, device: torch.device
) -> Computation | None:
    """``rollout_pool`` of a model; None where a fast path would gain nothing."""
    exact = mode is NumericMode.FP64  # what seldom comes often
    # On a CPU only float32 gains: elsewhere autocast would have to be compiled in.
    if exact or (device.type == "cpu" and mode is not NumericMode.FP32):
        return None
    return Computation(
        "pool",
        (model.card.digest, mode),
        partial(rollout_pool, model),
        partial(PoolModule, model, model.network) if isinstance(model, HasNetwork) else None,
        TOLERANCE,
    )
