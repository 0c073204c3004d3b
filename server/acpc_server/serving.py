"""A serving process from its start to its exit."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

import structlog

from acpc_server.app import Server, Signals, wait_for_signal
from acpc_server.errors import DeviceFailed
from acpc_server.observe import configure_logs
from acpc_server.options import raise_open_files
from acpc_server.settings import Settings
from acpc_server.watchdog import DEVICE_FAILED

log = structlog.get_logger("acpc.app")

# A thread that has the interpreter gives it up to another so soon. By default it is 5 ms, for which
# each operation of a request's device call may wait for a thread of a job.
SWITCH_SECONDS = 0.0005

# The allocator keeps what is smaller for itself, in each of its arenas, once it is freed; it gives
# larger blocks, as frames of a shard, back to the system.
RETURNED_BYTES = 2**24
_M_MMAP_THRESHOLD = -3  # of malloc.h


def serve_until_stopped(settings: Settings) -> NoReturn:
    """Serve until a signal or a failure ends it; exits the process, with 70 for a failed device.

    Raises FailedPrecondition: The server cannot be built or started.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    raise_open_files()
    with suppress(OSError, AttributeError):  # of glibc; others may not
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, RETURNED_BYTES)
    configure_logs(settings.log_level, "console" if sys.stderr.isatty() else "json")
    signals = Signals()  # the first stops the server, the second hurries it
    codes: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):  # also while the server starts
        signal.signal(number, lambda *_: signals.put(None))

    def leave(code: int) -> None:
        codes.append(code)
        signals.put(None)

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a hang-up never ends the process
    server = Server(settings, on_leave=leave)
    try:
        server.start()
    except DeviceFailed as error:
        log.error("failed", why=error.message, exit_code=DEVICE_FAILED)
        sys.exit(DEVICE_FAILED)
    # These objects stay; scanning them for garbage later would pause all calls.
    gc.collect()
    gc.freeze()
    wait_for_signal(signals)
    server.stop(signals)
    # A job's thread may be inside a device call, which cannot be interrupted. Its shards are on
    # record and it resumes at the next start, so exit without waiting for it.
    sys.stdout.flush()
    logging.shutdown()
    os._exit(codes[0] if codes else 0)
