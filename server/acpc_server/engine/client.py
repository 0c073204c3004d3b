"""Cuts everybody's work into device calls, queues them, and waits for the answers."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

import torch
from acpc.contract import NumericMode
from jaxtyping import Float
from torch import Tensor

from acpc_server.engine.accelerator import own_threads, pinned, to_device
from acpc_server.engine.arithmetic import (
    equal_rows,
    latent_dtype,
    load_derivatives,
    rollout_tangent,
)
from acpc_server.engine.caches import LatentCache
from acpc_server.engine.owner import DeviceCall, DeviceContext, DeviceOwner
from acpc_server.engine.programs import StepPrograms
from acpc_server.engine.sizes import (
    IN_PLACE_WORK,
    encoding_work,
    frames_per_call,
    pool_candidates_per_call,
    rollout_work,
    rollouts_per_call,
)
from acpc_server.errors import AcpcError, Cancelled, DeadlineExceeded
from acpc_server.models import (
    FrozenNetwork,
    FrozenWorldModel,
    TakesProprio,
    rollout,
    rollout_pool,
)
from acpc_server.observe import Metrics
from acpc_server.scheduling import (
    Admission,
    CallKind,
    DeviceQueue,
    Priority,
    RequestContext,
    Work,
    late,
)

PROPRIO_ROWS = 4096
# Bytes of latents that a request or a step of a job holds.
MAX_LATENTS = 2**30
# Requests whose dear views are drawn at a time.
DRAWING = 2
# One that waits for others is rejected while this share of its time is left, or so many seconds.
LAST_SHARE, LAST_SECONDS = 0.1, 0.1
PASSED = "the deadline passed while waiting for the device"
T = TypeVar("T")


class DeviceClient:
    """Encodes and rolls out on the device for any thread, interactive calls before those of jobs.

    Alike pairs that wait together share a device call. Nothing else does: a pool or a job is cut by
    its own shape alone, so that its numbers do not depend on what else was running.
    Given a :class:`DeviceContext`, in the device's thread, everything is computed at once.

    Args:
        admission: Admits requests; one of its own when None.
        merge: Whether pairs may share a device call.
        latent_bytes: Bytes of :attr:`latents`, those of recent requests.
        threads: CPU threads of the device's :attr:`owner`; torch's default when 0.
        on_failed: Called once with what is wrong when the device cannot be trusted any more.
    """

    def __init__(
        self,
        device: torch.device,
        metrics: Metrics,
        *,
        admission: Admission | None = None,
        merge: bool = True,
        latent_bytes: int = 0,
        threads: int = 0,
        programs: StepPrograms | None = None,
        on_failed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.device = device
        self.latents = LatentCache(latent_bytes, metrics)
        self.max_latents = MAX_LATENTS
        self.metrics = metrics
        self._drawing = threading.BoundedSemaphore(DRAWING)
        self._queue = DeviceQueue(metrics, admission or Admission(), merge=merge)
        self._programs = programs or StepPrograms(metrics, None)
        self.owner = DeviceOwner(
            device, metrics, self._queue, self._programs, threads=threads, on_failed=on_failed
        )

    def is_large(self, work: Work[Any]) -> bool:
        """Whether a request takes several device calls, or has dear views to draw."""
        dear = work.drawing > IN_PLACE_WORK and self.device.type == "cpu"
        return dear or work.rows > work.kind.max_rows

    async def ask(self, work: Work[Any], context: RequestContext) -> Any:  # noqa: ANN401
        """Have the device compute a request that is not large; returns what is to be finished.

        Raises as :meth:`run`.
        """
        remaining = context.remaining()
        if remaining is not None and context.waits:
            remaining -= min(LAST_SHARE * remaining, LAST_SECONDS)
        try:
            future = self._queue.put(work, context, asyncio.get_running_loop())
            async with asyncio.timeout(remaining) as limit:
                return await future
        except TimeoutError:
            if not limit.expired():  # the model's own
                raise
            context.cancel()
            if not context.waits:
                raise DeadlineExceeded(PASSED) from None
            raise late() from None

    def run(self, work: Work[T], context: RequestContext) -> T:
        """Answer a request, large or not, in a thread that may wait.

        Raises Cancelled, DeadlineExceeded: As the context says; ResourceExhausted: It would be
        late, or memory is short; Unavailable: The engine is closed, or its device has failed;
        AcpcError: The work's own.
        """
        if not self.is_large(work) and context.priority is Priority.INTERACTIVE:
            return work.finish(self._result(work, context))
        context.check()
        (outcome,) = work.compute([work.payload], context)
        if isinstance(outcome, AcpcError):
            raise outcome
        return work.finish(outcome)

    @contextmanager
    def drawing(self, work: float, context: RequestContext) -> Iterator[Callable[[], None]]:
        """Draw views in the block, which calls what it is given before each piece.

        On a CPU few requests draw dear ones at a time. Raises, as what it gives does, as the
        context says.
        """
        cheap = context.priority is Priority.INTERACTIVE and work <= IN_PLACE_WORK
        if cheap or self.device.type != "cpu" or isinstance(context, DeviceContext):
            try:
                yield context.check
            except torch.OutOfMemoryError:
                self.owner.graphs.crowd = True
                raise
        else:  # on one thread, or the device's would wait for each other's
            line = nullcontext() if context.priority is Priority.JOB else self._drawing
            with line, own_threads(1):
                context.check()
                yield context.check

    def prepare(self, model: FrozenWorldModel) -> None:
        """Cast a model's bf16 weights in this thread: in the device's, others would wait for it."""
        if self.device.type == "cpu" and isinstance(model, FrozenNetwork):
            with own_threads(1):
                model.in_bfloat16()

    def encode(
        self,
        model: FrozenWorldModel,
        frames: Float[Tensor, "n 3 height width"],
        context: RequestContext,
        mode: NumericMode,
    ) -> Float[Tensor, "n dim"]:
        """Projected embeddings of normalised frames, on the CPU: float32, in fp64 float64.

        Raises Cancelled, DeadlineExceeded: As the context, checked before every chunk;
        ResourceExhausted: A chunk is not admitted, or the device is out of memory; Unavailable: The
        engine is closed, or its device has failed.
        """
        # A request's was prepared before it took a slot.
        if mode is NumericMode.BF16 and context.priority is Priority.JOB:
            self.prepare(model)
        size = frames.shape[2:]
        most = frames_per_call(self.device.type, context.priority, model.card, *size)
        call = DeviceCall("encode", mode, encoding_work(model.card, *size), context)

        def encode(network: FrozenWorldModel, part: Tensor) -> Tensor:
            return network.encode(part)

        return self._run(call, most, partial(self.owner.by_model, model, call, encode), frames)

    def embed_proprio(
        self,
        model: FrozenWorldModel,
        proprio: Float[Tensor, "*n width"],
        context: RequestContext,
        mode: NumericMode,
    ) -> Float[Tensor, "*n slot"]:
        """Last coordinates of latents, of their frames' proprioception, as :meth:`encode`."""

        def compute(part: Tensor) -> Tensor:
            embedder = self.owner.for_mode(model, mode)
            assert isinstance(embedder, TakesProprio)  # noqa: S101 - its card says so
            return embedder.embed_proprio(part)

        call = DeviceCall("proprio", mode, math.inf, context)
        found = self._run(call, PROPRIO_ROWS, compute, proprio.flatten(0, -2))
        return found.view(*proprio.shape[:-1], -1)

    def rollout(
        self,
        model: FrozenWorldModel,
        histories: Float[Tensor, "n history dim"],
        blocks: Float[Tensor, "n steps width"],
        context: RequestContext,
        mode: NumericMode,
    ) -> Float[Tensor, "n horizon dim"]:
        """Predicted embeddings after each step (Eq. acpc-rollout-objects), as :meth:`encode`.

        Rows with equal histories and blocks get equal predictions.
        """
        if mode is NumericMode.BF16 and context.priority is Priority.JOB:
            self.prepare(model)
        steps = blocks.shape[1]
        most = rollouts_per_call(self.device.type, context.priority, model.card, steps)
        call = DeviceCall("rollout", mode, rollout_work(model.card, steps), context)

        def compute(starts: Tensor, part: Tensor) -> Tensor:
            return self.owner.by_model(model, call, rollout, starts, part, rows=len(starts))

        out = self._run(call, most, compute, histories, blocks)
        first = equal_rows(histories, blocks)
        return out if first is None else out[first]

    def rollout_pool(
        self,
        model: FrozenWorldModel,
        histories: Float[Tensor, "v history dim"],
        past: Float[Tensor, "past width"],
        pools: Float[Tensor, "p j horizon width"],
        context: RequestContext,
        mode: NumericMode,
    ) -> Float[Tensor, "v j horizon dim"]:
        """Every history rolled forward under every candidate of its pool, as :meth:`encode`.

        There is one pool, or one for each history. ``past`` are the blocks that leave the earlier
        history frames. Equal candidates of a pool get equal predictions.
        """
        horizon, dtype, count = pools.shape[2], latent_dtype(mode), len(histories)
        most = pool_candidates_per_call(self.device.type, count, model.card, horizon)
        call = DeviceCall("pool", mode, count * rollout_work(model.card, horizon), context)

        def compute(part: Tensor) -> Tensor:
            starts, before = to_device(self.device, dtype, histories, past)
            given, rows = (starts, before, part.transpose(0, 1)), count * len(part)
            rolled = self.owner.by_model(model, call, rollout_pool, *given, rows=rows)
            return rolled.transpose(0, 1)

        out = self._run(call, most, compute, pools.transpose(0, 1))  # (j, v, horizon, dim)
        rows = out.transpose(0, 1)
        firsts = [equal_rows(pool) for pool in pools]
        if any(first is not None for first in firsts):
            runs = zip(rows.chunk(len(pools)), firsts, strict=True)
            rows = torch.cat([run if first is None else run[:, first] for run, first in runs])
        return rows

    def rollout_tangent(
        self,
        model: FrozenWorldModel,
        histories: Float[Tensor, "n history 3 height width"],
        directions: Float[Tensor, "n history 3 height width"],
        blocks: Float[Tensor, "n steps block_width"],
        context: RequestContext,
    ) -> Float[Tensor, "n horizon dim"]:
        """Derivative of the predicted embeddings along directions of the normalised frames.

        Always in fp32; float32 on the CPU.

        Raises FailedPrecondition: The model's family hides its derivative.
        """
        load_derivatives()
        history, *_, height, width = histories.shape[1:]
        frames = frames_per_call(self.device.type, context.priority, model.card, height, width)
        most = max(1, frames // (2 * history))  # a derivative travels with each frame
        work = encoding_work(model.card, height, width) * 2 * history
        call = DeviceCall("tangent", NumericMode.FP32, work, context)
        columns = histories, directions, blocks
        return self._run(call, most, partial(rollout_tangent, model), *columns)

    def close(self) -> None:
        """Take no further work and stop once the queue is empty; waits a moment for that."""
        self.owner.close()
        self._programs.close()

    def _run(
        self, call: DeviceCall, most: int, work: Callable[..., Tensor], *columns: Tensor
    ) -> Tensor:
        """Compute the rows of some columns, at most so many in a device call."""
        outputs: list[Tensor] = []
        for part in zip(*(torch.split(column, most) for column in columns), strict=True):
            if isinstance(call.context, DeviceContext):
                outputs.append(self.owner.compute(call, work, *part))
                continue
            # Pinned in the caller's thread, so that the device's spends no time on copies.
            ready = [pinned(x, self.device) for x in part]

            def compute(payloads: Sequence[Sequence[Tensor]], _: object) -> list[Tensor]:
                return [self.owner.compute(call, work, *inputs) for inputs in payloads]

            asked = Work[Tensor](CallKind(call.primitive), ready, compute, len(part[0]))
            outputs.append(self._result(asked, call.context))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _result(self, work: Work[Any], context: RequestContext) -> Any:  # noqa: ANN401
        """Have the device compute work in one call, and wait for its answer in this thread."""
        context.check()
        try:
            with context.phase(work.kind.primitive):
                future = self._queue.put(work, context)
                context.wait_on(future)
                return future.result(context.remaining())
        except CancelledError:
            raise Cancelled("the request was cancelled") from None
        except TimeoutError:
            if not future.cancel() and future.done():  # at the last moment, or by this error
                return future.result()
            raise DeadlineExceeded(PASSED) from None
