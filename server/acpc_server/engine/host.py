"""What the server sets of its host: a device call's CPU threads."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from resource import getpagesize

import torch
from torch import Tensor

from acpc_server.engine.accelerator import held_memory
from acpc_server.observe import Metrics
from acpc_server.scheduling import pausing

_STATUS = Path("/proc/self/statm")
# Parameters x tokens that occupy a core for a few milliseconds. Below, a second thread gains
# nothing on an idle machine, and on a busy one every operation waits until both have had a turn.
THREADED_WORK = 4e8
# Threads of a device whose calls are cut in halves, and the name of the second one.
THREADS, HALF = 2, "device half"
# Histories of a rollout that is cut; each half reads all weights. Of 60, halves take an eighth more
# than threads that spin on an idle machine, and a tenth less than any beside a busy process.
HALVED_ROLLOUTS = 48
# Share of its time in line for a core above which a thread has busy neighbours, and below which it
# has none: 0.03 was measured on an idle machine, 0.25 to 0.45 beside a busy process.
CROWDED, ALONE = 0.15, 0.06
LOOK_SECONDS = 1.0
# Of OpenMP and, where torch has it, of MKL.
_SETTERS = ("omp_set_num_threads", "MKL_Set_Num_Threads_Local")


def report_memory(device: torch.device, metrics: Metrics) -> None:
    """Have every scrape read the memory that is held: a GPU's, or on a CPU this process's."""
    gauge = metrics.device_memory
    if device.type != "cpu":
        gauge.labels("allocated").set_function(lambda: held_memory(device)["allocated"])
        gauge.labels("reserved").set_function(lambda: held_memory(device)["reserved"])
    elif _STATUS.exists():
        gauge.labels("resident").set_function(
            lambda: int(_STATUS.read_text().split()[1]) * getpagesize()
        )


def by_work(row_work: float, compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Wrap ``compute`` so that small calls run on one thread, others on the calling thread's.

    ``row_work`` is parameters x tokens of one row. The choice depends on the call's shape alone:
    sums rounded on one thread and on two may differ in their last bits.
    """

    def on_threads(*inputs: Tensor) -> Tensor:
        if row_work * len(inputs[0]) >= THREADED_WORK:
            return compute(*inputs)
        with own_threads(1):
            return compute(*inputs)

    return on_threads


@contextmanager
def own_threads(count: int) -> Iterator[None]:
    """Run the block on so many threads, and then on as many as before."""
    before = torch.get_num_threads()
    if before != count:
        _set_own_threads(count)
    try:
        yield
    finally:
        if before != count:
            _set_own_threads(before)


def _set_own_threads(count: int) -> None:
    """Set the calling thread's count alone: torch's own function sets that of new threads too."""
    for setter in _setters():
        setter(count)


@cache
def _setters() -> list[Callable[[int], object]]:
    """Find the libraries' functions; none where torch is built in another way."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    except OSError:
        return []
    return [getattr(library, name) for name in _SETTERS if hasattr(library, name)]


class HalfCalls:
    """Has a second thread compute the later half of a call's rows on a CPU, beside the device's.

    Two threads that work on half of the rows each wait for each other once, where two that share
    every operation wait a hundred times: a twentieth of an encoder's time, a fifth beside another
    program. More than two threads were not tried.
    """

    def __init__(self) -> None:
        self._other = ThreadPoolExecutor(1, HALF)
        self._free = threading.Event()
        self._free.set()

    def compute(self, work: Callable[..., Tensor], *rows: Tensor, fewest: int = 2) -> Tensor:
        """Call ``work``, which takes no derivative, for rows in both threads at once.

        How they are cut depends on their number and the threads alone, as :func:`by_work`'s choice;
        fewer than ``fewest`` are not.
        """
        count, on_cpu = len(rows[0]), rows[0].device.type == "cpu"
        two = torch.get_num_threads() == THREADS and count >= max(2, fewest) and on_cpu
        if not (two and self._free.is_set()):
            return work(*rows)
        bf16, first = torch.is_autocast_enabled("cpu"), (count + 1) // 2
        later = [each[first:] for each in rows]
        try:
            other = self._other.submit(self._compute, partial(work, *later), bf16)
        except RuntimeError:  # no thread can be started
            return work(*rows)
        try:
            with own_threads(1):
                own = work(*(each[:first] for each in rows))
        finally:
            wait([other])  # it works with what the caller holds
        return torch.cat([own, other.result()])

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the second thread wait between two layers while the block has the cores."""
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    def close(self) -> None:
        """End the second thread, once it has nothing to compute."""
        self._other.shutdown(wait=False)

    def _compute(self, work: Callable[[], Tensor], bf16: bool) -> Tensor:
        with (
            torch.inference_mode(),
            torch.autocast("cpu", torch.bfloat16, enabled=bf16),
            own_threads(1),
            pausing(self._pause),
        ):
            return work()

    def _pause(self) -> None:
        self._free.wait()


class Waits:
    """Has threads of a device call that wait for each other spin, or sleep at once.

    Where cores are free, spinning saves a third of a rollout's time and none of an encoder's; where
    others use them, it takes the core of the thread that all wait for. OpenMP's threads sleep at
    once while there are more of them than cores: a second team, which does nothing, sees to that.
    """

    def __init__(self, threads: int) -> None:
        self._extra = len(os.sched_getaffinity(0)) - threads + 2 if threads > 1 else 0
        self._end: threading.Event | None = None
        self._next_look = 0.0
        self._ran = self._queued = 0
        self.choose(spin=False)

    @property
    def spins(self) -> bool:
        """Whether threads that wait spin."""
        return self._end is None

    def look(self) -> None:
        """Choose by how long the calling thread has waited for a core; looks once a second."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_SECONDS
        try:
            path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            ran, queued, _ = map(int, Path(path).read_text().split())
        except (OSError, ValueError):  # another system
            return
        share = (queued - self._queued) / max(1, ran - self._ran + queued - self._queued)
        self._ran, self._queued = ran, queued
        if share > CROWDED or share < ALONE:
            self.choose(spin=share < ALONE)

    def choose(self, *, spin: bool) -> None:
        """Have threads that wait spin from now on, or sleep."""
        if spin and self._end is not None:
            self._end.set()
            self._end = None
        elif not spin and self._end is None and self._extra > 1:
            end = threading.Event()
            with suppress(RuntimeError):  # no thread can be started; at the next look perhaps
                threading.Thread(
                    target=self._idle, args=(end,), name="idle team", daemon=True
                ).start()
                self._end = end

    def close(self) -> None:
        """End what it has started."""
        self.choose(spin=True)

    def _idle(self, end: threading.Event) -> None:
        with own_threads(self._extra):
            torch.ones(self._extra << 16).add_(1)  # which makes the team; it ends with this thread
        end.wait()
