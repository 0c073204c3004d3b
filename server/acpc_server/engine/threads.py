"""Chooses the CPU threads of a device call by its size."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

# Parameters x tokens that occupy a core for a few milliseconds. Below, a second thread gains
# nothing on an idle machine, and on a busy one every operation waits until both have had a turn.
THREADED_WORK = 4e8
# Of OpenMP and, where torch has it, of MKL.
_SETTERS = ("omp_set_num_threads", "MKL_Set_Num_Threads_Local")


def by_work(row_work: float, compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``compute`` on one thread where it has little to do, else on all of the calling thread's.

    ``row_work`` is parameters x tokens of one row. Depends on the call's shape alone: sums rounded
    on one thread and on two may differ in their last bits.
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
    """None where torch's libraries are built in another way; then every call is on all threads."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    except OSError:
        return []
    return [getattr(library, name) for name in _SETTERS if hasattr(library, name)]
