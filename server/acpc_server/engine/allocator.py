"""Settings of the C library's memory allocator."""

from __future__ import annotations

import ctypes

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
