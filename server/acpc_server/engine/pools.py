"""Rollouts of candidate pools as computations that a fast path may stand in for."""

from __future__ import annotations

from functools import partial
from typing import Protocol, runtime_checkable

from acpc.contract import NumericMode
from torch import Tensor, nn

from acpc_server.engine.fast_paths import Computation
from acpc_server.models import FrozenWorldModel, rollout_pool

# Of the largest number of an answer. In bfloat16 either answer is off by about 1e-2.
TOLERANCE, REDUCED_TOLERANCE = 1e-5, 5e-2


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


def pool_computation(model: FrozenWorldModel, mode: NumericMode) -> Computation | None:
    """``rollout_pool`` of a model; None where a fast path would gain nothing."""
    if mode is NumericMode.FP64:  # what seldom comes often
        return None
    reduced = mode is NumericMode.BF16
    return Computation(
        "pool",
        (model.card.digest, mode),
        partial(rollout_pool, model),
        partial(PoolModule, model, model.network) if isinstance(model, HasNetwork) else None,
        REDUCED_TOLERANCE if reduced else TOLERANCE,
        reduced,
    )
