"""The device's owner: one thread that computes chunks of everybody's work."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from acpc.contract import NumericMode
from jaxtyping import Float
from torch import Tensor

from acpc_server.engine.accelerator import pinned, to_device, to_host
from acpc_server.engine.answers import by_rows, equal_rows, repeatable, share_rows
from acpc_server.engine.fast_paths import FastPaths
from acpc_server.engine.latents import LatentCache
from acpc_server.engine.owner import DeviceOwner
from acpc_server.engine.pools import pool_computation
from acpc_server.engine.precision import arithmetic, latent_dtype
from acpc_server.engine.sizes import (
    HELD_LATENTS,
    UNCOUNTED_LATENTS,
    encoding_work,
    frames_per_call,
    pool_candidates_per_call,
    rollout_work,
    rollouts_per_call,
)
from acpc_server.engine.tangent import load_derivatives, rollout_tangent
from acpc_server.engine.threads import by_work
from acpc_server.errors import AcpcError
from acpc_server.models import (
    FrozenNetwork,
    FrozenWorldModel,
    TakesProprio,
    Widens,
    packs,
    rollout,
    rollout_pool,
    wrong_products,
)
from acpc_server.observe import Metrics
from acpc_server.scheduling import (
    AdmissionController,
    BatchQueue,
    Chunk,
    ConcurrencyLimiter,
    Priority,
    RequestContext,
    Slots,
)

PROPRIO_ROWS = 4096
PREPARED = {NumericMode.FP32: torch.float32, NumericMode.BF16: torch.bfloat16}
T = TypeVar("T")
U = TypeVar("U")


class DeviceEngine:
    """Runs encode and rollouts for everyone, interactive chunks before job chunks.

    Interactive chunks of one kind that wait together share a device call. Job chunks never do: a
    job is cut by its own shape alone, so that its numbers do not depend on what else was running.

    Args:
        admission: Admits interactive chunks, and learns what they cost; one of its own when None.
        merge: Whether chunks may share a device call.
        latent_bytes: Latents of frames seen lately that are kept for callers.
        threads: CPU threads of the device's owner; torch's default when 0.
        graph_after: Interactive pools of one shape before they get a fast path; 0: never.
        on_failed: Called once with what is wrong when the device cannot be trusted any more.

    Attributes:
        metrics: Where it counts, and whoever computes on it.
        max_latents: Bytes of latents that one request, or one step of a job, may hold; and those
            that the pieces of predictions of all interactive requests take together.
        latents: Those latents; :meth:`encode` itself neither reads nor fills it.
        limiter: Limits interactive requests at work; a slot is released during a device call.
        places: For requests that hold a piece of wide predictions; see :meth:`place`.
        owner: The thread that computes, and whether its device can be trusted.
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
        graph_after: int = 0,
        on_failed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.device = device
        self.latents = LatentCache(latent_bytes, metrics)
        self.limit_latents(2**30)
        self.limiter = ConcurrencyLimiter()
        self.metrics = metrics
        if device.type == "cpu":
            for mode, kind in PREPARED.items():
                packs(kind)  # tried before any work
                off = partial(wrong_products, kind)
                metrics.packed_off.labels(str(mode)).set_function(off)
        self._merge = merge
        # The float64 twin of the model that needed one last: it takes twice the model's bytes.
        self._wide = WeakKeyDictionary[FrozenWorldModel, FrozenWorldModel]()
        self._admission = admission = admission or AdmissionController()
        self._queue = BatchQueue(metrics, admission, self.limiter)
        self._fast = FastPaths(device, metrics, after=graph_after)
        self.owner = DeviceOwner(
            device, metrics, self._queue, admission.latency, threads=threads, on_failed=on_failed
        )

    def limit_latents(self, most: int) -> None:
        """Set :attr:`max_latents`; before any request."""
        self.max_latents = most
        # In float64 a piece takes 8 bytes a coordinate.
        self.places = Slots(max(1, most // (8 * HELD_LATENTS)), "a piece of wide predictions")

    def place(self, coordinates: int, context: RequestContext) -> AbstractContextManager[None]:
        """A place to hold predictions, for a request of so many coordinates in all.

        Few requests hold pieces at a time, however many are under way; one of narrow latents needs
        no place. Take it before a slot. Raises as :meth:`Slots.slot`.
        """
        return nullcontext() if coordinates <= UNCOUNTED_LATENTS else self.places.slot(context)

    def encode(
        self,
        model: FrozenWorldModel,
        frames: Float[Tensor, "n 3 height width"],
        context: RequestContext,
        mode: NumericMode,
    ) -> Float[Tensor, "n dim"]:
        """Projected embeddings of normalised frames, on the CPU: float32, in fp64 float64.

        Raises:
            Cancelled, DeadlineExceeded: As the context says, looked at before every chunk.
            ResourceExhausted: A chunk is not admitted, or the device is out of memory.
            Unavailable: The engine is closed, or its device has failed.
        """
        shape = tuple(frames.shape[1:])
        size = frames_per_call(self.device.type, context.priority, *shape[1:])
        parts = [(part,) for part in torch.split(frames, size)]
        kind = (id(model), shape)

        def compute(part: Tensor) -> Tensor:
            return self._for_mode(model, mode).encode(part)

        sized = by_work(encoding_work(model.card, *shape[1:]), compute)
        return self._run_all("encode", mode, kind, parts, sized, context, size)

    def embed_proprio(
        self,
        model: FrozenWorldModel,
        proprio: Float[Tensor, "*n width"],
        context: RequestContext,
        mode: NumericMode,
    ) -> Float[Tensor, "*n slot"]:
        """Last coordinates of latents, of their frames' proprioception, as :meth:`encode`."""
        rows = proprio.reshape(-1, proprio.shape[-1])
        parts = [(part,) for part in torch.split(rows, PROPRIO_ROWS)]

        def compute(part: Tensor) -> Tensor:
            embedder = self._for_mode(model, mode)
            assert isinstance(embedder, TakesProprio)  # noqa: S101 - its card says so
            return embedder.embed_proprio(part)

        kind = (id(model), proprio.shape[-1])
        found = self._run_all("proprio", mode, kind, parts, compute, context, PROPRIO_ROWS)
        return found.reshape(*proprio.shape[:-1], -1)

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
        size = rollouts_per_call(self.device.type, context.priority, model.card, blocks.shape[1])
        parts = list(zip(torch.split(histories, size), torch.split(blocks, size), strict=True))
        kind = (id(model), histories.shape[1], blocks.shape[1])

        def compute(history: Tensor, block: Tensor) -> Tensor:
            return rollout(self._for_mode(model, mode), history, block)

        sized = by_work(rollout_work(model.card, blocks.shape[1]), compute)
        out = self._run_all("rollout", mode, kind, parts, sized, context, size)
        return share_rows(out, histories, blocks)

    def rollout_pool(
        self,
        model: FrozenWorldModel,
        histories: Float[Tensor, "v history dim"],
        past: Float[Tensor, "*pools past width"],
        pools: Float[Tensor, "p j horizon width"],
        context: RequestContext,
        mode: NumericMode,
    ) -> Float[Tensor, "v j horizon dim"]:
        """Every history rolled forward under every candidate of its pool, as :meth:`encode`.

        There is a pool for each run of ``v / p`` histories. ``past`` are the blocks that leave the
        earlier history frames, (past, width), or (p, past, width). Equal candidates of a pool get
        equal predictions.
        """
        if 1 < len(pools) < len(histories) and self._fast.wanted:
            # A fast path is made for one shape: that of a pool alone comes again and again.
            each = zip(
                histories.chunk(len(pools)),
                past.expand(len(pools), -1, -1),
                torch.split(pools, 1),
                strict=True,
            )
            return torch.cat([self.rollout_pool(model, *one, context, mode) for one in each])
        horizon = pools.shape[2]
        size = pool_candidates_per_call(self.device.type, len(histories), model.card, horizon)
        by_candidate = pools.transpose(0, 1)  # (j, p, horizon, width)
        parts = [(part,) for part in torch.split(by_candidate, size)]
        kind = (id(model), tuple(histories.shape), tuple(by_candidate.shape[1:]))

        interactive = context.priority is Priority.INTERACTIVE  # a job's bytes must not change

        def compute(part: Tensor) -> Tensor:
            starts, before = to_device(self.device, latent_dtype(mode), histories, past)
            inputs = starts, before, part.transpose(0, 1)
            what = pool_computation(self._for_mode(model, mode), mode)
            if interactive and what is not None:
                out = self._fast.compute(what, *inputs)
            else:
                out = rollout_pool(self._for_mode(model, mode), *inputs)
            return out.transpose(0, 1)  # (j, v, horizon, dim)

        sized = by_work(len(histories) * rollout_work(model.card, horizon), compute)
        out = self._run_all("pool", mode, kind, parts, sized, context, size, mergeable=False)
        rows = out.transpose(0, 1)
        if any(equal_rows(pool) is not None for pool in pools):
            runs = zip(out.chunk(len(pools), dim=1), pools, strict=True)
            rows = torch.cat([share_rows(*pair).transpose(0, 1) for pair in runs])
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
        row_work = encoding_work(model.card, *histories.shape[3:]) * 2 * histories.shape[1]
        compute = by_work(row_work, partial(rollout_tangent, model))
        return self._run_all(
            "tangent", NumericMode.FP32, kind, rows, compute, context, size, mergeable=False
        )

    def share(
        self,
        primitive: str,
        kind: tuple[Hashable, ...],
        payload: T,
        compute: Callable[[Sequence[T], RequestContext], Sequence[U | AcpcError]],
        context: RequestContext,
        *,
        rows: int,
        max_rows: int,
    ) -> U:
        """What a request is answered by one device call, which it shares with others of its kind.

        ``compute`` is called in the device's thread with the payloads of all of them, of at most
        ``max_rows`` together; the methods above compute at once there. An answer that is an
        AcpcError is raised to its request alone; after an error that is raised every request is
        computed by itself. A request that is larger than a call has ``compute`` called here, and so
        one chunk after another queued.
        """
        if rows > max_rows or context.priority is not Priority.INTERACTIVE:
            with self.limiter.slot(context):
                (outcome,) = compute([payload], context)
            if isinstance(outcome, AcpcError):
                raise outcome
            return outcome
        together = partial(_in_one_call, compute)
        kind = (primitive, *kind)
        chunk = Chunk(primitive, kind, payload, rows, together, context, self._merge, max_rows)
        answer: U = self._result(chunk)
        return answer

    def close(self) -> None:
        """Take no further work and stop once the queue is empty; waits a moment for that."""
        self.owner.close()

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
        dtype = latent_dtype(mode)

        def once(*inputs: Tensor) -> Tensor:
            with arithmetic(mode, self.device):
                return to_host(compute(*to_device(self.device, dtype, *inputs)).to(dtype))

        in_mode = partial(repeatable, once, primitive, self.device, self.metrics)

        # Pinned in the caller's thread, so that the device's spends no time on copies.
        ready = (tuple(pinned(x, self.device) for x in part) for part in parts)
        if self.owner.is_here:
            return torch.cat([rows for part in ready for rows in by_rows(in_mode, [part])])
        merge = self._merge and mergeable and context.priority is Priority.INTERACTIVE
        kind, compute_all = (primitive, mode, *kind), partial(by_rows, in_mode)
        outputs = []
        for part in ready:
            rows = len(part[0])
            chunk = Chunk(primitive, kind, part, rows, compute_all, context, merge, max_rows)
            outputs.append(self._result(chunk))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _result(self, chunk: Chunk) -> Any:  # noqa: ANN401
        chunk.context.check()
        self._queue.put(chunk)
        chunk.context.wait_on(chunk.future)
        reserve = self._admission.reserve(chunk.work, chunk.context)
        return self.limiter.result(chunk.future, chunk.context, reserve)

    def _for_mode(self, model: FrozenWorldModel, mode: NumericMode) -> FrozenWorldModel:
        """The model, or its twin with weights prepared for a mode; in the device's thread.

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


def _in_one_call(
    compute: Callable[[Sequence[T], RequestContext], Sequence[U]], payloads: Sequence[T]
) -> Sequence[U]:
    return compute(payloads, RequestContext(Priority.INTERACTIVE))
