"""Checks every second whether the process is still sound, and ends one that is not.

A supervisor (systemd, Kubernetes, Compose) starts another in its place.
"""

from __future__ import annotations

import _thread
import faulthandler
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from acpc_server.observe import ServerHealth

log = structlog.get_logger("acpc.watchdog")
TICK_SECONDS = 1.0
# Time that counts between two looks: a process that was stopped meanwhile has not been wrong.
MAX_COUNTED_SECONDS = 2.0
# Exit codes beside 0 (stopped), 1 (cannot start, evicted) and 2 (settings).
DEVICE_FAILED, SELF_TEST_FAILED = 70, 71
# From the verdict to the end of the process, to answer callers and withdraw jobs.
LEAVE_SECONDS = 8.0
# How long a process that leaves waits for the line that says why.
LOG_SECONDS = 5.0
# A process in which no Python runs for so long, in spite of the watchdog, is ended from C.
MIN_FREEZE_SECONDS = 600.0
STDERR = 2


@dataclass
class Check:
    """One check of the process."""

    name: str  # in logs and among the obstacles to readiness
    look: Callable[[], str]  # what is wrong now, or ''; must not wait
    # How long it may be wrong before the process leaves; what comes and goes counts for as long as
    # it was there less as long as it was not.
    seconds: float
    exit_code: int
    ready_seconds: float = math.inf  # how long it may be wrong before readiness turns off
    each_alone: bool = False  # whether another text is another matter, as of one call after another
    wrong: str = ""
    wrong_seconds: float = 0.0

    def observe(self, elapsed: float) -> None:
        """Look, ``elapsed`` seconds after the last time."""
        found = self._found()
        if not found:
            self.wrong_seconds = max(0.0, self.wrong_seconds - elapsed)
        elif not self.wrong:
            pass  # it began somewhere since the last look
        elif self.each_alone and found != self.wrong:
            self.wrong_seconds = 0.0
        else:
            self.wrong_seconds += elapsed
        self.wrong = found

    def _found(self) -> str:
        try:
            return self.look()
        except Exception as error:  # noqa: BLE001  a look needs memory and threads itself
            return f"cannot be looked at: {type(error).__name__}"


class Watchdog:
    """Runs checks in a thread of its own, and ends the process by itself when it has to.

    ``on_failed`` is called once, with the exit code, to leave in order; ``end`` ends the process
    :data:`LEAVE_SECONDS` after that, if it still runs.
    """

    def __init__(
        self,
        checks: Sequence[Check],
        health: ServerHealth,
        on_failed: Callable[[int], None],
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._checks = checks
        self._health = health
        self._on_failed = on_failed
        self._end = end
        self._exit_code = 0
        self._guarded = -math.inf
        self._failing = threading.Lock()
        self._logged = threading.Event()
        self._woken = threading.Event()
        self._freeze_seconds = max(MIN_FREEZE_SECONDS, *(2 * check.seconds for check in checks))
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; a process that has failed is still ended, once it has logged why."""
        if self._exit_code:
            self._logged.wait(LOG_SECONDS)
            return
        self._woken.set()
        self._thread.join()

    def fail(self, why: str, exit_code: int) -> None:
        """Leave, from any thread; the first reason counts."""
        if not self._failing.acquire(blocking=False):
            return
        self._exit_code = exit_code
        self._woken.set()
        self._health.fail(why)
        self._on_failed(exit_code)
        log.error("failed", why=why, exit_code=exit_code)
        self._logged.set()

    def _run(self) -> None:
        last = time.monotonic()
        self._guard_against_freezing()
        while not self._woken.wait(TICK_SECONDS):
            now = time.monotonic()
            elapsed, last = min(now - last, MAX_COUNTED_SECONDS), now
            for check in self._checks:
                self._look(check, elapsed)
            self._guard_against_freezing()
        faulthandler.cancel_dump_traceback_later()
        if self._exit_code:
            leaves = time.monotonic() + LEAVE_SECONDS
            self._logged.wait(LOG_SECONDS)  # both write to stderr, and would cut each other's lines
            with suppress(Exception):  # where everything hangs, for whoever reads the log
                faulthandler.dump_traceback(STDERR)
            time.sleep(max(0.0, leaves - time.monotonic()))
            self._end(self._exit_code)

    def _look(self, check: Check, elapsed: float) -> None:
        """Short of memory or threads, this much must still work."""
        check.observe(elapsed)
        with suppress(Exception):
            if check.wrong and check.wrong_seconds >= check.seconds:
                self.fail(f"{check.wrong}, for {check.wrong_seconds:.0f} s", check.exit_code)
            elif check.wrong and check.wrong_seconds >= check.ready_seconds:
                self._health.block(check.name, check.wrong)
            elif not check.wrong:
                self._health.clear(check.name)

    def _guard_against_freezing(self) -> None:
        """A native call that holds Python's lock stops this thread too; a thread of C's does not.

        It measures time only, so the bound is large: a process that is stopped for as long ends.
        """
        if time.monotonic() - self._guarded < self._freeze_seconds / 10:
            return
        with suppress(Exception):
            faulthandler.dump_traceback_later(self._freeze_seconds, exit=True, file=STDERR)
            self._guarded = time.monotonic()


def threads_short() -> str:
    """Return what is wrong when no thread can be started, or ''."""
    try:
        # Not threading.Thread, whose start waits for a thread that may die before it says so.
        _thread.start_new_thread(int, ())
    except RuntimeError:
        return "no thread can be started"
    return ""
