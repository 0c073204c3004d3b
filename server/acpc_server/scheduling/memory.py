"""Looks whether the host has memory, before others find that it has none."""

from __future__ import annotations

import mmap

# For what is not asked about: gRPC ends the process by a signal where it gets no memory.
RESERVE_BYTES = 128 * 1024 * 1024


def memory_short(wanted: int = 0) -> str:
    """Return what is wrong when so many bytes, and a reserve, cannot be had; '' when they can.

    Maps address space and touches none of it.
    """
    wanted += RESERVE_BYTES
    try:
        mmap.mmap(-1, wanted).close()
    except (OSError, MemoryError):
        return f"{wanted // 2**20} MiB of memory cannot be had"
    return ""
