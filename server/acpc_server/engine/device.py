"""Computes networks on the device, in the one thread that owns it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from weakref import WeakKeyDictionary

import torch
from acpc.contract import NumericMode
from torch import Tensor

from acpc_server.engine.accelerator import to_device, to_host
from acpc_server.engine.answers import FiniteCheck, by_rows
from acpc_server.engine.arithmetic import arithmetic, latent_dtype
from acpc_server.engine.fast_paths import FastPaths, pool_computation
from acpc_server.engine.host import own_threads
from acpc_server.models import (
    FrozenNetwork,
    FrozenWorldModel,
    Widens,
    packs,
    rollout,
    rollout_pool,
    wrong_products,
)
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext

PREPARED = {NumericMode.FP32: torch.float32, NumericMode.BF16: torch.bfloat16}


class DeviceContext(RequestContext):
    """The context of work inside a device call: what it asks of the device is computed at once."""

    def __init__(self, priority: Priority = Priority.INTERACTIVE) -> None:
        super().__init__(priority)


class Device:
    """Computes payloads at once; for the device's thread only.

    ``graph_after`` interactive pools of one shape get a captured graph; 0: never.
    """

    def __init__(self, device: torch.device, metrics: Metrics, *, graph_after: int) -> None:
        self.device = device
        self.fast = FastPaths(device, metrics, after=graph_after)
        self.check = FiniteCheck(device, metrics)
        # The float64 twin of the model that needed one last: it takes twice the model's bytes.
        self._wide = WeakKeyDictionary[FrozenWorldModel, FrozenWorldModel]()
        if device.type == "cpu":
            for mode, kind in PREPARED.items():
                with own_threads(1):  # or this thread had a team of its own, beside the device's
                    packs(kind)  # tried before any work
                off = partial(wrong_products, kind)
                metrics.packed_off.labels(str(mode)).set_function(off)

    def compute(
        self,
        primitive: str,
        mode: NumericMode,
        work: Callable[..., Tensor],
        payloads: Sequence[tuple[Tensor, ...]],
    ) -> Sequence[Tensor]:
        """Compute payloads as one batch in ``mode``; return each one's rows, on the CPU.

        Raises DeviceFailed, Unavailable: As :meth:`FiniteCheck.compute`.
        """
        dtype = latent_dtype(mode)

        def once(*inputs: Tensor) -> Tensor:
            with arithmetic(mode, self.device):
                return to_host(work(*to_device(self.device, dtype, *inputs)).to(dtype))

        return by_rows(partial(self.check.compute, once, primitive), payloads)

    def encode(self, model: FrozenWorldModel, mode: NumericMode, frames: Tensor) -> Tensor:
        """Encode frames (n, 3, height, width) on the device."""
        return self.for_mode(model, mode).encode(frames)

    def rollout(
        self, model: FrozenWorldModel, mode: NumericMode, histories: Tensor, blocks: Tensor
    ) -> Tensor:
        """Roll out histories (n, h, dim) on the device."""
        return rollout(self.for_mode(model, mode), histories, blocks)

    def pool(
        self,
        model: FrozenWorldModel,
        mode: NumericMode,
        priority: Priority,
        histories: Tensor,
        past: Tensor,
        candidates: Tensor,
    ) -> Tensor:
        """Roll out candidates (j, p, horizon, width) of pools; return (j, v, horizon, dim)."""
        prepared = self.for_mode(model, mode)
        # By a fast path where there are any; a job's bytes must not change.
        fast = self.fast.wanted and priority is Priority.INTERACTIVE
        if fast and (what := pool_computation(prepared, mode)) is not None:
            rolled = self.fast.compute(what, histories, past, candidates.transpose(0, 1))
            return rolled.transpose(0, 1)
        rolled = rollout_pool(prepared, histories, past, candidates.transpose(0, 1))
        # Copied before it is widened, which halves what a bfloat16 answer takes.
        return to_host(rolled.transpose(0, 1))

    def for_mode(self, model: FrozenWorldModel, mode: NumericMode) -> FrozenWorldModel:
        """Return the model, or its twin with weights prepared for a mode.

        A plug-in's model that hands what it lacks on to one of ours is no such network itself.
        """
        if mode in PREPARED and isinstance(model, FrozenNetwork):
            return model.prepared(PREPARED[mode])
        if mode is NumericMode.FP64 and isinstance(model, Widens):
            if model not in self._wide:
                self._wide.clear()
                self._wide[model] = model.in_float64()
            return self._wide[model]
        return model
