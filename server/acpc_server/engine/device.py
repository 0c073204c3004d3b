"""Computes networks on the device, in the one thread that owns it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import structlog
import torch
from acpc.contract import NumericMode
from torch import Tensor

from acpc_server.engine.accelerator import release_cache, to_device, to_host
from acpc_server.engine.answers import is_finite
from acpc_server.engine.arithmetic import arithmetic, in_mode, latent_dtype
from acpc_server.engine.graphs import PoolGraphs
from acpc_server.engine.host import own_threads
from acpc_server.engine.programs import GRAPH, StepPrograms
from acpc_server.engine.self_test import self_test
from acpc_server.errors import DeviceFailed, shortage
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


# Parameters x tokens that occupy a core for a few milliseconds. Below, a second thread gains
# nothing on an idle machine, and on a busy one every operation waits until both have had a turn.
THREADED_WORK = 4e8


class DeviceContext(RequestContext):
    """The context of work inside a device call: what it asks of the device is computed at once."""


class DeviceCall(NamedTuple):
    """What a device call computes, for whom, and the parameters x tokens of one of its rows."""

    primitive: str
    mode: NumericMode
    row_work: float
    context: RequestContext


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

    def compute(self, call: DeviceCall, work: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """Compute rows, the first axis of every input and of the answer, which is on the CPU.

        Small calls run on one thread, as their shape alone decides: sums that are rounded on one
        thread and on two may differ in their last bits. In halves where memory runs out.

        Raises DeviceFailed: The answer is not finite, and the device fails its self-test.
        """
        rows, dtype = len(inputs[0]), latent_dtype(call.mode)
        one = call.row_work * rows < THREADED_WORK and torch.get_num_threads() > 1

        def once() -> Tensor:
            with own_threads(1) if one else nullcontext(), arithmetic(call.mode, self.device):
                return to_host(work(*to_device(self.device, dtype, *inputs)).to(dtype))

        try:
            answer = once()
            if not is_finite(answer) and all(map(is_finite, inputs)):
                return self._again(once, call)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            short = isinstance(error, torch.OutOfMemoryError) or shortage(error) is not None
            if rows == 1 or not short:
                raise
            log.warning("device_out_of_memory", rows=rows)
        else:
            return answer
        release_cache()
        halves = zip(*(torch.split(x, (rows + 1) // 2) for x in inputs), strict=True)
        return torch.cat([self.compute(call, work, *half) for half in halves])

    def pool(
        self,
        model: FrozenWorldModel,
        call: DeviceCall,
        histories: Tensor,
        past: Tensor,
        candidates: Tensor,
    ) -> Tensor:
        """Roll out candidates (j, p, horizon, width) of pools; return (j, v, horizon, dim)."""
        inputs, context = (histories, past, candidates.transpose(0, 1)), call.context
        roll = partial(rollout_pool, self.for_mode(model, call.mode))
        # A job's bytes must not depend on what came before, and a plug-in's model may keep things
        # from one call to the next.
        interactive = context.priority is Priority.INTERACTIVE
        if self.graphs.wanted and interactive and isinstance(model, FrozenNetwork):
            rolled = self.graphs.compute(roll, model.card.digest, call.mode, *inputs)
            context.program = GRAPH if self.graphs.replayed else context.program or ""
        else:
            rows = len(histories) * len(candidates)
            with self._programs.serve(model, call.mode, context, rows):
                rolled = to_host(roll(*inputs))  # before it is widened: halves what bf16 takes
        return rolled.transpose(0, 1)

    def roll(
        self, model: FrozenWorldModel, call: DeviceCall, histories: Tensor, blocks: Tensor
    ) -> Tensor:
        """Roll out histories (n, h, dim) under blocks of their own (n, h - 1 + horizon, width)."""
        with self._programs.serve(model, call.mode, call.context, len(histories)):
            return rollout(self.for_mode(model, call.mode), histories, blocks)

    def for_mode(self, model: FrozenWorldModel, mode: NumericMode) -> FrozenWorldModel:
        """Return the model as :func:`in_mode` does, with a float64 twin that is kept."""
        if mode is not NumericMode.FP64:
            return in_mode(model, mode)
        if model not in self._wide:
            self._wide.clear()
            self._wide[model] = in_mode(model, mode)
        return self._wide[model]

    def _again(self, once: Callable[[], Tensor], call: DeviceCall) -> Tensor:
        """Compute once more what was not finite, of finite inputs.

        One that stays non-finite is the device's fault where it fails its self-test, and else the
        model's: a checkpoint that diverges must not end the server. Raises DeviceFailed.
        """
        again = once()
        repeated = not is_finite(again)
        outcome = "repeated" if repeated else "changed"
        self._metrics.not_finite.labels(call.primitive, outcome).inc()
        rows = len(again)
        log.warning("answer_not_finite", primitive=call.primitive, rows=rows, again=outcome)
        if repeated and time.monotonic() >= self._test_due:
            if wrong := self_test(self.device, [call.mode]):
                raise DeviceFailed(
                    f"the device fails its self-test: {call.mode!s} {wrong[call.mode]}"
                )
            self._test_due = time.monotonic() + TEST_SECONDS
        return again
