"""Computes networks on the device, in the one thread that owns it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from weakref import WeakKeyDictionary

import structlog
import torch
from acpc.contract import NumericMode
from torch import Tensor

from acpc_server.engine.accelerator import to_device, to_host
from acpc_server.engine.answers import in_halves
from acpc_server.engine.arithmetic import arithmetic, in_mode, latent_dtype
from acpc_server.engine.graphs import PoolGraphs
from acpc_server.engine.programs import GRAPH, StepPrograms
from acpc_server.engine.self_test import self_test
from acpc_server.errors import DeviceFailed
from acpc_server.models import (
    FrozenNetwork,
    FrozenWorldModel,
    rollout,
    rollout_pool,
)
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext

log = structlog.get_logger("acpc.engine")
# A checkpoint that diverges costs at most one self-test in so many seconds.
TEST_SECONDS = 1.0


class DeviceContext(RequestContext):
    """The context of work inside a device call: what it asks of the device is computed at once."""


class Device:
    """Computes payloads at once; for the device's thread only."""

    def __init__(self, device: torch.device, metrics: Metrics, programs: StepPrograms) -> None:
        self.device = device
        self.graphs = PoolGraphs(device, metrics)
        self._programs = programs
        self._metrics = metrics
        self._test_due = 0.0
        # The float64 twin of the model that needed one last: it takes twice the model's bytes.
        self._wide = WeakKeyDictionary[FrozenWorldModel, FrozenWorldModel]()

    def compute(
        self,
        primitive: str,
        mode: NumericMode,
        work: Callable[..., Tensor],
        payloads: Sequence[tuple[Tensor, ...]],
    ) -> Sequence[Tensor]:
        """Compute payloads as one batch in ``mode``; return each one's rows, on the CPU.

        Raises DeviceFailed: An answer is not finite, and the device fails its self-test.
        """
        dtype = latent_dtype(mode)

        def once(*inputs: Tensor) -> Tensor:
            with arithmetic(mode, self.device):
                return to_host(work(*to_device(self.device, dtype, *inputs)).to(dtype))

        finite = partial(self._finite, once, primitive, mode)
        if len(payloads) == 1:
            return [in_halves(finite, *payloads[0])]
        joined = (torch.cat(column) for column in zip(*payloads, strict=True))
        rows = in_halves(finite, *joined)
        return torch.split(rows, [len(payload[0]) for payload in payloads])

    def pool(
        self,
        model: FrozenWorldModel,
        mode: NumericMode,
        context: RequestContext,
        histories: Tensor,
        past: Tensor,
        candidates: Tensor,
    ) -> Tensor:
        """Roll out candidates (j, p, horizon, width) of pools; return (j, v, horizon, dim)."""
        inputs = histories, past, candidates.transpose(0, 1)
        roll = partial(rollout_pool, self.for_mode(model, mode))
        # A job's bytes must not depend on what came before, and a plug-in's model may keep things
        # from one call to the next.
        interactive = context.priority is Priority.INTERACTIVE
        if self.graphs.wanted and interactive and isinstance(model, FrozenNetwork):
            rolled = self.graphs.compute(roll, model.card.digest, mode, *inputs)
            context.program = GRAPH if self.graphs.replayed else context.program or ""
        else:
            rows = len(histories) * len(candidates)
            with self._programs.serve(model, mode, context, rows):
                rolled = to_host(roll(*inputs))  # before it is widened: halves what bf16 takes
        return rolled.transpose(0, 1)

    def roll(
        self,
        model: FrozenWorldModel,
        mode: NumericMode,
        context: RequestContext,
        histories: Tensor,
        blocks: Tensor,
    ) -> Tensor:
        """Roll out histories (n, h, dim) under blocks of their own (n, h - 1 + horizon, width)."""
        with self._programs.serve(model, mode, context, len(histories)):
            return rollout(self.for_mode(model, mode), histories, blocks)

    def for_mode(self, model: FrozenWorldModel, mode: NumericMode) -> FrozenWorldModel:
        """Return the model as :func:`in_mode` does, with a float64 twin that is kept."""
        if mode is not NumericMode.FP64:
            return in_mode(model, mode)
        if model not in self._wide:
            self._wide.clear()
            self._wide[model] = in_mode(model, mode)
        return self._wide[model]

    def _finite(
        self,
        once: Callable[..., Tensor],
        primitive: str,
        mode: NumericMode,
        *inputs: Tensor,
    ) -> Tensor:
        """Compute on the CPU; once more when finite inputs give a non-finite answer.

        One that stays non-finite is the device's fault where it fails its self-test, and else the
        model's: a checkpoint that diverges must not end the server. Raises DeviceFailed.
        """
        answer = once(*inputs)
        if _is_finite(answer) or not all(map(_is_finite, inputs)):
            return answer
        again = once(*inputs)
        repeated = not _is_finite(again)
        outcome = "repeated" if repeated else "changed"
        self._metrics.not_finite.labels(primitive, outcome).inc()
        log.warning("answer_not_finite", primitive=primitive, rows=len(answer), again=outcome)
        if repeated and time.monotonic() >= self._test_due:
            if wrong := self_test(self.device, [mode]):
                raise DeviceFailed(f"the device fails its self-test: {mode!s} {wrong[mode]}")
            self._test_due = time.monotonic() + TEST_SECONDS
        return again


def _is_finite(rows: Tensor) -> bool:
    return bool(torch.isfinite(rows).all())
