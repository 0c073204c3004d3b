"""The thread that owns the device, and its verdict on whether the device can be trusted.

A device call fails by its own fault (a request or a plug-in family that cannot work), for want of
memory, or by the device's fault. The first two are answered and the device lives on; after the
third every caller gets DeviceFailed, and the server has to leave.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog
import torch
from acpc.contract import NumericMode

from acpc_server.engine.answers import accelerator_failed
from acpc_server.engine.device import DeviceContext
from acpc_server.engine.self_test import self_test
from acpc_server.errors import AcpcError, DeviceFailed, ResourceExhausted, shortage
from acpc_server.observe import Metrics
from acpc_server.scheduling import RETRY_SECONDS, Chunk, DeviceQueue, settle

log = structlog.get_logger("acpc.engine")
# A chunk on a CPU may take this long; the thread is a daemon and does not outlive the process.
CLOSE_SECONDS = 5.0


class DeviceOwner:
    """Computes queued chunks in a thread of its own, with ``threads`` CPU threads (0: torch's).

    Calls ``on_failed`` once with what is wrong when the device cannot be trusted any more, in the
    thread that noticed.
    """

    def __init__(
        self,
        device: torch.device,
        metrics: Metrics,
        queue: DeviceQueue,
        *,
        threads: int,
        on_failed: Callable[[str], None],
    ) -> None:
        self._device = device
        self._metrics = metrics
        self._queue = queue
        self._on_failed = on_failed
        self._failing = threading.Lock()
        self._calls = 0
        self.call = ""  # the one under way, with another text for every call
        self._thread = threading.Thread(
            target=self._own_device, args=(threads,), name="device", daemon=True
        )
        self._ready = threading.Event()
        self._thread.start()
        self._ready.wait()

    def fail(self, why: str) -> None:
        """Give the device up: callers get DeviceFailed, and ``on_failed`` is called, once."""
        if not self._failing.acquire(blocking=False):
            return
        try:
            self._on_failed(why)
        finally:
            self._queue.fail(why)

    def close(self) -> None:
        """Take no further work and stop once the queue is empty; waits a moment for that."""
        self._queue.close()
        if not self._failing.locked():
            self._thread.join(CLOSE_SECONDS)

    def _own_device(self, threads: int) -> None:
        try:
            if threads:
                torch.set_num_threads(threads)
            torch.get_num_threads()  # settles this thread's count, whatever others set later
            self._ready.set()
            while self._serve(self._queue.take()):
                pass
        except BaseException as error:
            self.fail(f"{type(error).__name__}: {error}")
            log.exception("device_thread_ended")

    def _serve(self, batch: list[Chunk]) -> bool:
        """Compute chunks that share a call; returns whether there were any."""
        if not batch:
            return False
        work, rows = batch[0].work, sum(chunk.work.rows for chunk in batch)
        started = time.perf_counter()
        self._calls += 1
        self.call = f"device call {self._calls} ({work.primitive}, {rows} rows)"
        try:
            outcomes = work.compute([chunk.work.payload for chunk in batch], DeviceContext())
        except BaseException as raised:  # SystemExit of a plug-in ends neither thread nor server
            error = raised if isinstance(raised, Exception) else RuntimeError(repr(raised))
            error = error.with_traceback(raised.__traceback__)
            if (answer := self._answer(error)) is None:
                raise
            if len(batch) == 1 or isinstance(answer, ResourceExhausted):
                settle((chunk, answer) for chunk in batch)
            else:  # whose fault it is shows when each is computed alone
                for chunk in batch:
                    self._serve([chunk])
            return True
        finally:
            self.call = ""
        seconds = time.perf_counter() - started
        priority = batch[0].context.priority.name.lower()
        self._metrics.compute.labels(work.primitive, priority).observe(seconds)
        for chunk in batch:
            waited = started - chunk.queued_at
            chunk.context.queued(waited, work.primitive)
            chunk.context.compute_seconds += seconds
            self._metrics.queue_wait.labels(priority).observe(waited)
        settle(zip(batch, outcomes, strict=True))
        return True

    def _answer(self, error: Exception) -> Exception | None:
        """Return the error that callers of a failed call get; None when the device is at fault."""
        if isinstance(error, torch.OutOfMemoryError):
            answer = ResourceExhausted(
                "the device is out of memory; unload checkpoints or send fewer frames",
                reason="DEVICE_MEMORY",
                retry_after=RETRY_SECONDS,
            )
            answer.__cause__ = error
            return answer
        if isinstance(error, DeviceFailed) or accelerator_failed(error):
            return None
        if isinstance(error, AcpcError):
            return error
        if (short := shortage(error)) is not None:
            return short
        # A plug-in family with a fault, or a device with one: a network without one tells.
        try:
            return None if self_test(self._device, [NumericMode.FP32]) else error
        except Exception as another:  # noqa: BLE001
            return shortage(another)
