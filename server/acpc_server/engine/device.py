"""The device's owner: one thread, a queue with two priorities, work cut into chunks."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from acpc_server.engine.modes import NumericMode, arithmetic
from acpc_server.engine.ticket import Priority, Ticket
from acpc_server.errors import Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable
from acpc_server.models import FrozenWorldModel
from acpc_server.models.rollout import rollout
from acpc_server.observe import Metrics

# A chunk is the longest time an interactive request waits behind a job. Sizes depend on the shape
# of one request only, never on load, so that a repeated job is cut alike and gives the same bytes.
CHUNK_PIXELS = {"cpu": 16 * 224 * 224, "cuda": 256 * 224 * 224}
CHUNK_FRAMES = 512
CHUNK_ROLLOUTS = {"cpu": 128, "cuda": 4096}
RETRY_SECONDS = 0.25


class _Chunk:
    """One piece of device work and the future its caller waits on."""

    def __init__(self, work: Callable[[], Tensor], ticket: Ticket, primitive: str) -> None:
        self.work = work
        self.ticket = ticket
        self.primitive = primitive
        self.future: Future[Tensor] = Future()
        self.queued_at = time.perf_counter()


class DeviceEngine:
    """Runs encode and rollout for everyone; interactive chunks go before job chunks.

    Args:
        device: Where checkpoints live and compute.
        metrics: Series for queue wait and compute time.
        max_queue: Interactive chunks that may wait; more are refused with ResourceExhausted.
    """

    def __init__(self, device: torch.device, metrics: Metrics, *, max_queue: int = 256) -> None:
        self.device = device
        self._metrics = metrics
        self._max_queue = max_queue
        self._queue: queue.PriorityQueue[tuple[int, int, _Chunk | None]] = queue.PriorityQueue()
        self._sequence = itertools.count()
        self._waiting = dict.fromkeys(Priority, 0)
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._own_device, name="device", daemon=True)
        self._thread.start()

    def frames_per_chunk(self, height: int, width: int) -> int:
        """Frames of this size that one device chunk encodes."""
        return max(1, min(CHUNK_FRAMES, CHUNK_PIXELS[self.device.type] // (height * width)))

    def encode(
        self,
        model: FrozenWorldModel,
        frames: Float[Tensor, "n 3 height width"],
        ticket: Ticket,
        mode: NumericMode,
    ) -> Float[Tensor, "n dim"]:
        """Projected embeddings of normalised frames, as float32 on the CPU.

        Raises:
            Cancelled, DeadlineExceeded: As the ticket says, checked before every chunk.
            ResourceExhausted: The interactive queue is full, or the device out of memory.
            Unavailable: The engine is closed.
        """
        size = self.frames_per_chunk(frames.shape[-2], frames.shape[-1])

        def work(part: Tensor) -> Tensor:
            return model.encode(part.to(self.device, non_blocking=True))

        parts = torch.split(frames, size)
        done = [self._run(partial(work, part), ticket, mode, "encode") for part in parts]
        return torch.cat(done)  # (n, dim)

    def rollout(
        self,
        model: FrozenWorldModel,
        histories: Float[Tensor, "n history dim"],
        blocks: Float[Tensor, "n steps width"],
        ticket: Ticket,
        mode: NumericMode,
    ) -> Float[Tensor, "n horizon dim"]:
        """Predicted embeddings after each step (Eq. acpc-rollout-objects), float32 on the CPU.

        Raises:
            Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable: As for :meth:`encode`.
        """
        size = CHUNK_ROLLOUTS[self.device.type]

        def work(history: Tensor, block: Tensor) -> Tensor:
            return rollout(model, history.to(self.device), block.to(self.device))

        parts = zip(torch.split(histories, size), torch.split(blocks, size), strict=True)
        done = [self._run(partial(work, *part), ticket, mode, "rollout") for part in parts]
        return torch.cat(done)  # (n, horizon, dim)

    def close(self) -> None:
        """Refuse further work and stop once the queue is empty."""
        with self._lock:
            self._closed = True
            self._queue.put((len(Priority), next(self._sequence), None))

    def _run(
        self, work: Callable[[], Tensor], ticket: Ticket, mode: NumericMode, primitive: str
    ) -> Tensor:
        def in_mode() -> Tensor:
            with arithmetic(mode, self.device):
                return work().float().cpu()

        ticket.check()
        chunk = _Chunk(in_mode, ticket, primitive)
        self._admit(chunk)
        ticket.wait_on(chunk.future)
        try:
            return chunk.future.result(ticket.remaining())
        except CancelledError:
            raise Cancelled("the request was cancelled") from None
        except TimeoutError:
            if not chunk.future.cancel() and chunk.future.done():  # ended at the last moment
                return chunk.future.result()
            raise DeadlineExceeded("the deadline passed while waiting for the device") from None

    def _admit(self, chunk: _Chunk) -> None:
        priority = chunk.ticket.priority
        with self._lock:
            if self._closed:
                raise Unavailable("the server is draining", retry_after=RETRY_SECONDS)
            if priority is Priority.INTERACTIVE and self._waiting[priority] >= self._max_queue:
                raise ResourceExhausted(
                    f"{self._max_queue} requests already wait for the device",
                    reason="QUEUE_FULL",
                    retry_after=RETRY_SECONDS,
                )
            self._count(priority, 1)
            # Under the lock, or the mark of the queue's end could get ahead of the chunk.
            self._queue.put((priority, next(self._sequence), chunk))

    def _count(self, priority: Priority, change: int) -> None:
        self._waiting[priority] += change
        self._metrics.queue_depth.labels(priority.name.lower()).set(self._waiting[priority])

    def _own_device(self) -> None:
        while self._serve_next():
            pass

    def _serve_next(self) -> bool:
        # One call a chunk, so that an idle device holds on to no frames and to no model.
        chunk = self._queue.get()[2]
        if chunk is None:
            return False
        with self._lock:
            self._count(chunk.ticket.priority, -1)
        if chunk.future.set_running_or_notify_cancel():
            self._compute(chunk)
        return True

    def _compute(self, chunk: _Chunk) -> None:
        ticket, priority = chunk.ticket, chunk.ticket.priority.name.lower()
        started = time.perf_counter()
        waited = started - chunk.queued_at
        try:
            ticket.check()
            result = chunk.work()
        except torch.OutOfMemoryError as error:
            chunk.future.set_exception(_out_of_memory(error))
            return
        except Exception as error:  # noqa: BLE001  the caller gets it, the device lives on
            chunk.future.set_exception(error)
            return
        computed = time.perf_counter() - started
        ticket.queue_seconds += waited
        ticket.compute_seconds += computed
        self._metrics.queue_wait.labels(priority).observe(waited)
        self._metrics.compute.labels(chunk.primitive, priority).observe(computed)
        chunk.future.set_result(result)


def _out_of_memory(error: torch.OutOfMemoryError) -> ResourceExhausted:
    refusal = ResourceExhausted(
        "the device is out of memory; unload checkpoints or send fewer frames",
        reason="DEVICE_MEMORY",
        retry_after=RETRY_SECONDS,
    )
    refusal.__cause__ = error
    return refusal
