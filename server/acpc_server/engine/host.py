"""What the server sets of its host: a device call's CPU threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from resource import getpagesize

import torch

from acpc_server.engine.accelerator import held_memory
from acpc_server.observe import Metrics

_STATUS = Path("/proc/self/statm")
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


@contextmanager
def own_threads(count: int) -> Iterator[None]:
    """Run the block on so many threads, and then on as many as before."""
    before = torch.get_num_threads()
    # Torch's own function sets the count of new threads too.
    setters = _setters() if before != count else []
    for setter in setters:
        setter(count)
    try:
        yield
    finally:
        for setter in setters:
            setter(before)


@cache
def _setters() -> list[Callable[[int], object]]:
    """Find the libraries' functions; none where torch is built in another way."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    except OSError:
        return []
    return [getattr(library, name) for name in _SETTERS if hasattr(library, name)]
