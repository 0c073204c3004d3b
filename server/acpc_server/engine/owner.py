"""The thread that owns the device, what it computes, and its verdict on the device.

A device call fails by its own fault (a request or a plug-in family that cannot work), for want of
memory, or by the device's fault. The first two are answered and the device lives on; after the
third every caller gets DeviceFailed, and the server has to leave.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import structlog
import torch
from acpc.contract import NumericMode
from torch import Tensor

from acpc_server.engine.accelerator import (
    accelerator_failed,
    own_threads,
    release_cache,
    to_device,
    to_host,
)
from acpc_server.engine.arithmetic import arithmetic, in_mode, latent_dtype
from acpc_server.engine.graphs import Graphs
from acpc_server.engine.programs import GRAPH, StepPrograms
from acpc_server.engine.self_test import OtherModes, self_test
from acpc_server.errors import AcpcError, DeviceFailed, ResourceExhausted, shortage
from acpc_server.models import FrozenNetwork, FrozenWorldModel
from acpc_server.observe import Metrics
from acpc_server.scheduling import (
    RETRY_SECONDS,
    DeviceQueue,
    Priority,
    RequestContext,
    Work,
    settle,
)

log = structlog.get_logger("acpc.engine")
# A call on a CPU may take this long; the thread is a daemon and does not outlive the process.
CLOSE_SECONDS = 5.0
# A checkpoint that diverges costs at most one self-test in so many seconds.
TEST_SECONDS = 1.0
# Parameters x tokens that occupy a core for a few milliseconds. Below, a second thread gains
# nothing on an idle machine, and on a busy one every operation waits until both have had a turn.
THREADED_WORK = 4e8


class DeviceContext(RequestContext):
    """The context of work inside a device call: what it asks of the device is computed at once.

    ``alone``: The call is one request's, so that its shapes are those of the caller's next one.
    """

    def __init__(self, *, alone: bool = True) -> None:
        super().__init__()
        self.alone = alone


class DeviceCall(NamedTuple):
    """What a device call computes, for whom, and the parameters x tokens of one of its rows."""

    primitive: str
    mode: NumericMode
    row_work: float
    context: RequestContext


class DeviceOwner:
    """Computes what is queued in a thread of its own, with ``threads`` CPU threads (0: torch's).

    Calls ``on_failed`` once with what is wrong when the device cannot be trusted any more, in the
    thread that noticed. What computes is for the device's thread only.
    """

    def __init__(
        self,
        device: torch.device,
        metrics: Metrics,
        queue: DeviceQueue,
        programs: StepPrograms,
        *,
        threads: int,
        on_failed: Callable[[str], None],
    ) -> None:
        self._device = device
        self._metrics = metrics
        self._queue = queue
        self._programs = programs
        self._on_failed = on_failed
        self.graphs = Graphs(device, metrics)
        self._modes = OtherModes(device)
        self._test_due = 0.0
        # The float64 twin of the model that needed one last: it takes twice the model's bytes.
        self._wide = WeakKeyDictionary[FrozenWorldModel, FrozenWorldModel]()
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

    def compute(self, call: DeviceCall, work: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """Compute rows, the first axis of every input and of the answer, which is on the CPU.

        Small calls run on one thread, as their shape alone decides: sums that are rounded on one
        thread and on two may differ in their last bits. In halves where memory runs out.

        Raises DeviceFailed: The answer is not finite, and the device fails its self-test;
        FailedPrecondition: It fails at the mode, which is tried at its first use.
        """
        self._modes.require(call.mode)
        rows, dtype = len(inputs[0]), latent_dtype(call.mode)
        one = call.row_work * rows < THREADED_WORK and torch.get_num_threads() > 1
        try:
            with own_threads(1) if one else nullcontext():
                for again in (False, True):
                    with arithmetic(call.mode, self._device):
                        answer = to_host(work(*to_device(self._device, dtype, *inputs)).to(dtype))
                    finite = bool(torch.isfinite(answer).all())
                    if again:
                        self._judge(call, rows, finite)
                    elif finite or not all(bool(torch.isfinite(x).all()) for x in inputs):
                        break
                return answer
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            short = isinstance(error, torch.OutOfMemoryError) or shortage(error) is not None
            if short:
                self.graphs.drop()  # each holds memory that only it may use
            if rows == 1 or not short:
                raise
            log.warning("device_out_of_memory", rows=rows)
        release_cache()
        halves = zip(*(torch.split(x, (rows + 1) // 2) for x in inputs), strict=True)
        return torch.cat([self.compute(call, work, *half) for half in halves])

    def by_model(
        self,
        model: FrozenWorldModel,
        call: DeviceCall,
        compute: Callable[..., Tensor],
        *inputs: Tensor,
        rows: int = 0,
    ) -> Tensor:
        """Compute ``compute(model, *inputs)`` by a graph where one is wanted, and else eagerly.

        So many ``rows`` are rolled out, by the compiled step where there is one.
        """
        placed = partial(compute, self.for_mode(model, call.mode))
        if self.captures(model, call):
            return self._by_graph(model, call, placed, *inputs)
        rolls = self._programs.serve(model, call.mode, call.context, rows)
        with rolls if rows else nullcontext():
            return to_host(placed(*inputs))  # before it is widened: halves what bf16 takes

    def captured(
        self,
        model: FrozenWorldModel,
        call: DeviceCall,
        what: Hashable,
        compute: Callable[..., Tensor],
        there: Sequence[Tensor],
        *sent: Tensor,
        chosen: int = 0,
    ) -> Tensor | None:
        """Compute ``compute(model, *inputs)`` of a request by one graph, or eagerly at first.

        Inputs are ``there``, or float32 tensors of the host, which are ``sent`` in one copy;
        ``what`` names the computation beside the call, ``chosen`` is as in :meth:`Graphs.compute`.
        None where memory is short.
        """
        self._modes.require(call.mode)
        placed = partial(compute, self.for_mode(model, call.mode))
        try:
            with arithmetic(call.mode, self._device):
                inputs = *there, *to_device(self._device, torch.float32, *sent)
                return self._by_graph(model, call, placed, *inputs, what=what, chosen=chosen)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not isinstance(error, torch.OutOfMemoryError) and shortage(error) is None:
                raise
            self.graphs.drop()
            return None

    def captures(self, model: FrozenWorldModel, call: DeviceCall) -> bool:
        """Whether a graph is wanted: of one request's call, or of a job's.

        A plug-in's model may keep things from one call to the next, and what shares a call is of
        another size each time.
        """
        context = call.context
        alone = not isinstance(context, DeviceContext) or context.alone
        return self.graphs.wanted and isinstance(model, FrozenNetwork) and alone

    def _by_graph(
        self,
        model: FrozenWorldModel,
        call: DeviceCall,
        compute: Callable[..., Tensor],
        *inputs: Tensor,
        what: Hashable = None,
        chosen: int = 0,
    ) -> Tensor:
        context, named = call.context, (call.primitive, model.card.digest, what)
        job = context.priority is not Priority.INTERACTIVE
        found = self.graphs.compute(compute, named, call.mode, *inputs, exact=job, chosen=chosen)
        if not job:
            context.program = GRAPH if self.graphs.replayed else context.program or ""
        return found

    def for_mode(self, model: FrozenWorldModel, mode: NumericMode) -> FrozenWorldModel:
        """Return the model as :func:`in_mode` does, with a float64 twin that is kept."""
        if mode in (NumericMode.FP32, NumericMode.TF32):
            return model
        if mode is NumericMode.BF16:
            return in_mode(model, mode)
        if model not in self._wide:
            self._wide.clear()
            self._wide[model] = in_mode(model, mode)
        return self._wide[model]

    def _judge(self, call: DeviceCall, rows: int, finite: bool) -> None:
        """Judge an answer that was not finite, of finite inputs, and was computed once more.

        One that stays non-finite is the device's fault where it fails its self-test, and else the
        model's: a checkpoint that diverges must not end the server. Raises DeviceFailed.
        """
        outcome = "changed" if finite else "repeated"
        self._metrics.not_finite.labels(call.primitive, outcome).inc()
        log.warning("answer_not_finite", primitive=call.primitive, rows=rows, again=outcome)
        if not finite and time.monotonic() >= self._test_due:
            if wrong := self_test(self._device, [call.mode]):
                raise DeviceFailed(
                    f"the device fails its self-test: {call.mode!s} {wrong[call.mode]}"
                )
            self._test_due = time.monotonic() + TEST_SECONDS

    def _own_device(self, threads: int) -> None:
        try:
            if self._device.type != "cpu":
                threads = 1  # copies alone are the processor's, and a team takes longer to wake
            if threads:
                torch.set_num_threads(threads)
            torch.get_num_threads()  # settles this thread's count, whatever others set later
            self._ready.set()
            while batch := self._queue.take():
                self._serve(batch)
                del batch  # an idle device holds on to no frames and to no model
        except BaseException as error:
            self.fail(f"{type(error).__name__}: {error}")
            log.exception("device_thread_ended")

    def _serve(self, batch: list[Work[Any]]) -> None:
        """Compute work that shares a call, and settle it."""
        first, rows = batch[0], sum(work.rows for work in batch)
        primitive = first.kind.primitive
        started = time.perf_counter()
        self._calls += 1
        self.call = f"device call {self._calls} ({primitive}, {rows} rows)"
        try:
            context = DeviceContext(alone=len(batch) == 1)
            outcomes = first.compute([work.payload for work in batch], context)
        except BaseException as raised:  # SystemExit of a plug-in ends neither thread nor server
            error = raised if isinstance(raised, Exception) else RuntimeError(repr(raised))
            error = error.with_traceback(raised.__traceback__)
            if (answer := self._answer(error)) is None:
                raise
            if len(batch) == 1 or isinstance(answer, ResourceExhausted):
                settle((work, answer) for work in batch)
            else:  # whose fault it is shows when each is computed alone
                for work in batch:
                    self._serve([work])
            return
        finally:
            self.call = ""
        seconds = time.perf_counter() - started
        priority = first.context.priority.name.lower()
        self._metrics.compute.labels(primitive, priority).observe(seconds)
        for work in batch:
            waited = started - work.queued_at
            work.context.queued(waited, primitive)
            work.context.compute_seconds += seconds
            self._metrics.queue_wait.labels(priority).observe(waited)
        settle(zip(batch, outcomes, strict=True))

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
