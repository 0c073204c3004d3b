"""Settings of the C library's memory allocator, and what the device's holds."""

from __future__ import annotations

import ctypes
from functools import partial
from pathlib import Path
from resource import getpagesize

import torch

from acpc_server.engine.accelerator import held_memory
from acpc_server.observe import Metrics

# Parameters of mallopt in glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8
_MIB = 1024 * 1024


def keep_freed_memory() -> bool:
    """Have the C library reuse freed memory instead of returning it to the system.

    Networks allocate and free the same few megabytes thousands of times a second; with the default
    settings every buffer is mapped, zeroed page by page, and unmapped again. Resident memory stays
    at its peak instead of falling between requests. Call it before any thread starts.

    Returns:
        Whether the settings took; they exist in glibc only.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return False
    settings = {
        _ARENA_MAX: 1,  # arenas of other threads are capped at 64 MiB, too small to keep buffers
        _MMAP_THRESHOLD: 32 * _MIB,  # the largest value glibc takes
        _TRIM_THRESHOLD: 1024 * _MIB,
        _TOP_PAD: 64 * _MIB,
    }
    return all([library.mallopt(name, value) for name, value in settings.items()])


def report_memory(device: torch.device, metrics: Metrics) -> None:
    """Have every scrape ask how much memory is held: a GPU's, or on a CPU this process's."""
    gauge = metrics.device_memory
    if device.type != "cpu":
        for kind in ("allocated", "reserved"):
            gauge.labels(kind).set_function(partial(_held, device, kind))
    elif _STATUS.exists():
        gauge.labels("resident").set_function(_resident_bytes)


_STATUS = Path("/proc/self/statm")


def _held(device: torch.device, kind: str) -> float:
    return float(held_memory(device)[kind])


def _resident_bytes() -> float:
    return float(int(_STATUS.read_text().split()[1]) * getpagesize())
