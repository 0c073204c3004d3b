"""The device's owner: one thread that computes chunks of everybody's work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import structlog
import torch
from acpc.contract import NumericMode
from jaxtyping import Float
from torch import Tensor

from acpc_server.engine.compiled import RepeatedPools
from acpc_server.engine.equal_rows import equal_rows, share_rows
from acpc_server.engine.latents import LatentCache
from acpc_server.engine.precision import arithmetic
from acpc_server.engine.sizes import frames_per_call, pool_candidates_per_call, rollouts_per_call
from acpc_server.engine.tangent import load_derivatives, rollout_tangent
from acpc_server.errors import Cancelled, DeadlineExceeded, ResourceExhausted
from acpc_server.models import FrozenWorldModel, Reduces, rollout, rollout_pool
from acpc_server.observe import Metrics
from acpc_server.scheduling import (
    RETRY_SECONDS,
    AdmissionController,
    BatchQueue,
    Chunk,
    ConcurrencyLimiter,
    Priority,
    RequestContext,
    Work,
)

log = structlog.get_logger("acpc.engine")
# A chunk on a CPU may take this long; the thread is a daemon and does not outlive the process.
CLOSE_SECONDS = 5.0


class DeviceEngine:
    """Runs encode and rollouts for everyone, interactive chunks before job chunks.

    Interactive chunks of one kind that wait together share a device call. Job chunks never do: a
    job is cut by its own shape alone, so that its numbers do not depend on what else was running.

    Args:
        admission: Admits interactive chunks, and learns what they cost; one of its own when None.
        merge: Whether chunks may share a device call.
        latent_bytes: Latents of frames seen lately that are kept for callers.
        threads: CPU threads of the device's owner; torch's default when 0.
        compile_after: Interactive pools of one shape before their rollout is compiled; 0: never.

    Attributes:
        metrics: Where it counts, and whoever computes on it.
        latents: Those latents; :meth:`encode` itself neither reads nor fills it.
        limiter: Limits interactive requests at work; a slot is released during a device call.
    """

    def __init__(
        self,
        device: torch.device,
        metrics: Metrics,
        *,
        admission: AdmissionController | None = None,
        merge: bool = True,
        latent_bytes: int = 0,
        threads: int = 0,
        compile_after: int = 0,
    ) -> None:
        self.device = device
        self.latents = LatentCache(latent_bytes, metrics)
        self.limiter = ConcurrencyLimiter()
        self.metrics = metrics
        self._merge = merge
        admission = admission or AdmissionController()
        self._latency = admission.latency
        self._queue = BatchQueue(metrics, admission, self.limiter)
        self._repeats = RepeatedPools(
            device, metrics, after=compile_after, threads=threads or torch.get_num_threads()
        )
        self._thread = threading.Thread(
            target=self._own_device, args=(threads,), name="device", daemon=True
        )
        self._ready = threading.Event()
        self._thread.start()
        self._ready.wait()

    def encode(
        self,
        model: FrozenWorldModel,
        frames: Float[Tensor, "n 3 height width"],
        context: RequestContext,
        mode: NumericMode,
    ) -> Float[Tensor, "n dim"]:
        """Projected embeddings of normalised frames, as float32 on the CPU.

        Raises:
            Cancelled, DeadlineExceeded: As the context says, looked at before every chunk.
            ResourceExhausted: A chunk is not admitted, or the device is out of memory.
            Unavailable: The engine is closed.
        """
        shape = tuple(frames.shape[1:])
        size = frames_per_call(self.device.type, context.priority, *shape[1:])
        parts = [(part,) for part in torch.split(frames, size)]
        kind = (id(model), shape)

        def compute(part: Tensor) -> Tensor:
            return _for_mode(model, mode).encode(part)

        return self._run_all("encode", mode, kind, parts, compute, context, size)

    def rollout(
        self,
        model: FrozenWorldModel,
        histories: Float[Tensor, "n history dim"],
        blocks: Float[Tensor, "n steps width"],
        context: RequestContext,
        mode: NumericMode,
    ) -> Float[Tensor, "n horizon dim"]:
        """Predicted embeddings after each step (Eq. acpc-rollout-objects), float32 on the CPU.

        Rows with equal histories and blocks get equal predictions.
        """
        size = rollouts_per_call(self.device.type, context.priority, model.card, blocks.shape[1])
        parts = list(zip(torch.split(histories, size), torch.split(blocks, size), strict=True))
        kind = (id(model), histories.shape[1], blocks.shape[1])

        def compute(history: Tensor, block: Tensor) -> Tensor:
            return rollout(_for_mode(model, mode), history, block)

        out = self._run_all("rollout", mode, kind, parts, compute, context, size)
        return share_rows(out, histories, blocks)

    def rollout_pool(
        self,
        model: FrozenWorldModel,
        histories: Float[Tensor, "v history dim"],
        past: Float[Tensor, "past width"],
        pools: Float[Tensor, "#v j horizon width"],
        context: RequestContext,
        mode: NumericMode,
    ) -> Float[Tensor, "v j horizon dim"]:
        """Every history rolled forward under every candidate of its pool, float32 on the CPU.

        ``past`` are the blocks that leave the earlier history frames. Equal candidates of a pool
        get equal predictions.
        """
        size = pool_candidates_per_call(self.device.type, len(histories))
        by_candidate = pools.transpose(0, 1)  # (j, 1 or v, horizon, width)
        parts = [(part,) for part in torch.split(by_candidate, size)]
        kind = (id(model), tuple(histories.shape), tuple(by_candidate.shape[1:]))

        interactive = context.priority is Priority.INTERACTIVE  # a job's bytes must not change

        def compute(part: Tensor) -> Tensor:
            inputs = histories.to(self.device), past.to(self.device), part.transpose(0, 1)
            if interactive:
                out = self._repeats.rollout(_for_mode(model, mode), inputs, mode)
            else:
                out = rollout_pool(_for_mode(model, mode), *inputs)
            return out.transpose(0, 1)  # (j, v, horizon, dim)

        out = self._run_all("pool", mode, kind, parts, compute, context, size, mergeable=False)
        if len(pools) == 1:
            return share_rows(out, pools[0]).transpose(0, 1)
        rows = out.transpose(0, 1)
        if any(equal_rows(pool) is not None for pool in pools):
            rows = torch.stack([share_rows(*pair) for pair in zip(rows, pools, strict=True)])
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

        Raises:
            FailedPrecondition: The model's family hides its derivative.
        """
        load_derivatives()
        frames = frames_per_call(self.device.type, context.priority, *histories.shape[3:])
        size = max(1, frames // (2 * histories.shape[1]))  # a derivative travels with each frame
        parts = [torch.split(x, size) for x in (histories, directions, blocks)]
        rows = list(zip(*parts, strict=True))
        kind = (id(model), tuple(histories.shape[1:]), blocks.shape[1])
        compute = partial(rollout_tangent, model)
        return self._run_all(
            "tangent", NumericMode.FP32, kind, rows, compute, context, size, mergeable=False
        )

    def close(self) -> None:
        """Take no further work and stop once the queue is empty; waits a moment for that."""
        self._queue.close()
        self._thread.join(CLOSE_SECONDS)

    def _run_all(
        self,
        primitive: str,
        mode: NumericMode,
        kind: tuple[Hashable, ...],
        parts: Sequence[tuple[Tensor, ...]],
        compute: Callable[..., Tensor],
        context: RequestContext,
        max_rows: int,
        *,
        mergeable: bool = True,
    ) -> Tensor:
        def in_mode(*inputs: Tensor) -> Tensor:
            with arithmetic(mode, self.device):
                on_device = [self._pin(x).to(self.device, non_blocking=True) for x in inputs]
                return compute(*on_device).float().cpu()

        merge = self._merge and mergeable and context.priority is Priority.INTERACTIVE
        kind = (primitive, mode, *kind)
        # Pinned in the caller's thread, so that the device's spends no time on copies.
        pinned = (tuple(self._pin(x) for x in part) for part in parts)
        outputs = [
            self._run(Chunk(primitive, kind, part, in_mode, context, merge, max_rows))
            for part in pinned
        ]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _pin(self, tensor: Tensor) -> Tensor:
        """Page-locked on its way to a GPU, which copies it without the processor's help."""
        if self.device.type != "cuda" or tensor.is_cuda or tensor.is_pinned():
            return tensor
        return tensor.pin_memory()

    def _run(self, chunk: Chunk) -> Tensor:
        context = chunk.context
        context.check()
        self._queue.put(chunk)
        context.wait_on(chunk.future)
        return self.limiter.result(chunk.future, context)

    def _own_device(self, threads: int) -> None:
        if threads:
            torch.set_num_threads(threads)
        torch.get_num_threads()  # settles this thread's count, whatever others set later
        self._ready.set()
        while self._serve_next():
            pass

    def _serve_next(self) -> bool:
        # One call a batch, so that an idle device holds on to no frames and to no model.
        batch = self._queue.take()
        if ready := [chunk for chunk in batch if _still_wanted(chunk)]:
            self._serve(ready)
        return bool(batch)

    def _serve(self, batch: list[Chunk]) -> None:
        first = batch[0]
        inputs = first.inputs
        if len(batch) > 1:
            inputs = tuple(torch.cat(x) for x in zip(*(c.inputs for c in batch), strict=True))
        started = time.perf_counter()
        try:
            outputs = _compute(first.compute, inputs)
        except torch.OutOfMemoryError as error:
            _fail(batch, _out_of_memory(error))
            return
        except Exception as error:  # noqa: BLE001  the callers get it, the device lives on
            _fail(batch, error)
            return
        seconds = time.perf_counter() - started
        self._latency.learn(Work(first.kind, len(inputs[0])), seconds)
        priority = first.context.priority.name.lower()
        self.metrics.compute.labels(first.primitive, priority).observe(seconds)
        parts = torch.split(outputs, [chunk.rows for chunk in batch])
        for chunk, part in zip(batch, parts, strict=True):
            waited = started - chunk.queued_at
            chunk.context.queue_seconds += waited
            chunk.context.compute_seconds += seconds
            self.metrics.queue_wait.labels(priority).observe(waited)
            chunk.future.set_result(part)


def _for_mode(model: FrozenWorldModel, mode: NumericMode) -> FrozenWorldModel:
    """The model, or its twin with the weights in bfloat16, which autocast need not cast again."""
    if mode is NumericMode.BF16 and isinstance(model, Reduces):
        return model.in_bfloat16()
    return model


def _still_wanted(chunk: Chunk) -> bool:
    """Whether to compute the chunk; a caller who ran out of time is told so."""
    if not chunk.future.set_running_or_notify_cancel():
        return False
    try:
        chunk.context.check()
    except (Cancelled, DeadlineExceeded) as error:
        chunk.future.set_exception(error)
        return False
    return True


def _compute(compute: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
    """Compute all rows; in halves when the device runs out of memory."""
    try:
        return compute(*inputs)
    except torch.OutOfMemoryError:
        rows = len(inputs[0])
        if rows == 1:
            raise
        log.warning("device_out_of_memory", rows=rows)
    torch.cuda.empty_cache()
    halves = zip(*(torch.split(x, (rows + 1) // 2) for x in inputs), strict=True)
    return torch.cat([_compute(compute, half) for half in halves])


def _fail(batch: list[Chunk], error: Exception) -> None:
    for chunk in batch:
        chunk.future.set_exception(error)


def _out_of_memory(cause: torch.OutOfMemoryError) -> ResourceExhausted:
    error = ResourceExhausted(
        "the device is out of memory; unload checkpoints or send fewer frames",
        reason="DEVICE_MEMORY",
        retry_after=RETRY_SECONDS,
    )
    error.__cause__ = cause
    return error
