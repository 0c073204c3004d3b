"""One worker process: started, talked to, and started again when it dies."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import structlog

from acpc_server.observe import WRITING

log = structlog.get_logger("acpc.supervisor")
STDERR = 2
READ_BYTES = 2**16
# What a worker wrote before its end is read for so long.
LAST_WORDS_SECONDS = 2.0
# Time that counts between two questions: a host that slept, and we with it, has heard no silence.
MAX_COUNTED_SECONDS = 2.0
# A native call may keep Python's lock while it computes; a second of that counts as a part of one.
COMPUTING = 1 / 6
# A process that takes this share of a core computes.
LEAST_LOAD = 0.1


def program(module: str) -> list[str]:
    """Command of a module's ``main``; an interrupt ends it without a traceback while it loads."""
    loaded = f"load_command('acpc-server', '{module}', 'server')"
    return [sys.executable, "-c", f"from acpc.extras import load_command; {loaded}.main()"]


class Pulse:
    """Time since a process last reported, or since its start until it is first ready."""

    def __init__(self, pid: int, patience: tuple[float, float]) -> None:
        self._pid = pid
        self._limits = patience
        self.ready = False
        self._silent = 0.0
        self._last, self._cpu = time.monotonic(), 0.0

    def heard(self, *, ready: bool) -> None:
        """Take note that it spoke."""
        self.ready = self.ready or ready
        if self.ready:
            self._silent = 0.0

    def hangs(self) -> bool:
        """Look, and return whether it has been silent for too long."""
        now, cpu = time.monotonic(), _cpu_seconds(self._pid)
        elapsed = min(now - self._last, MAX_COUNTED_SECONDS)
        computes = self.ready and not cpu - self._cpu < LEAST_LOAD * elapsed  # or untold
        self._silent += elapsed * (COMPUTING if computes else 1.0)
        self._last, self._cpu = now, cpu
        return self._silent > self._limits[self.ready]


class WorkerProcess:
    """A process that serves, and the next one after its death.

    Args:
        command: The program. It reads ``first`` as JSON in the first line of its input, and writes
            its state, ``{"ready": bool, "metrics_port": int | None}``, in lines of its output.
        on_change: Called whenever it became ready, is so no more, died or is given up.
        back_off: Seconds until the second start, twice as long each further time.
        steady: Seconds it must have served for its death to count as the first again.
        most: Deaths in a row after which it is given up.
        patience: Seconds to become ready, and of silence from then on, after which it is killed;
            of silence six times as many while it computes.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        first: Mapping[str, Any],
        on_change: Callable[[], None],
        *,
        back_off: float = 1.0,
        steady: float = 60.0,
        most: int = 5,
        patience: tuple[float, float] = (300.0, 10.0),
    ) -> None:
        self.name = name
        self._command = list(command)
        self._first = json.dumps(first) + "\n"
        self._on_change = on_change
        self._back_off, self._steady, self._most = back_off, steady, most
        self.ready = self.served = False  # it takes calls, or one of its processes has
        self.metrics_port: int | None = None
        self.starts = 0
        # Above 128 for a signal; after :meth:`stop`, 0 where nothing ran.
        self.exit_code: int | None = None
        self.given_up = False  # it died before it ever served, or too often
        self._patience = patience
        self._pulse: Pulse | None = None
        self._stopping = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._telling = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name=f"worker {name}", daemon=True)

    def start(self) -> None:
        """Start it, and again whenever it dies."""
        self._thread.start()

    def stop(self) -> None:
        """Have it leave in an orderly way; it is not started again."""
        with self._telling:
            self.exit_code = 0 if self._process is None else None
        self._stopping.set()
        self.tell("stop")

    def kill(self) -> None:
        """End the process at once, if there is one."""
        with self._telling:
            if self._process is not None:
                self._process.kill()

    @property
    def over(self) -> bool:
        """Whether no process of it runs or will."""
        return not self._thread.is_alive()

    def tell(self, line: str) -> None:
        """Say a line to the process, if there is one."""
        with self._telling:
            process = self._process
            if process is None or process.stdin is None:
                return
            try:
                process.stdin.write(f"{line}\n")
                process.stdin.flush()
            except (OSError, ValueError):  # it has just died, and that is seen elsewhere
                pass

    def ask(self, line: str) -> None:
        """Say a line that it answers with its state; one that answers no more is killed."""
        pulse = self._pulse
        if pulse is not None and pulse.hangs():
            log.error("worker_hung", of=self.name)
            self.kill()
        elif pulse is not None and pulse.ready:  # one that starts reads nothing yet
            self.tell(line)

    def _keep(self) -> None:
        deaths = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            self._live()
            if self._stopping.is_set():
                break
            lasted = time.monotonic() - began
            deaths = 1 if lasted >= self._steady else deaths + 1
            self.given_up = deaths >= self._most or not self.served
            seconds = self._back_off * 2 ** (deaths - 1)
            facts = {"of": self.name, "exit_code": self.exit_code, "lasted": round(lasted, 1)}
            if self.given_up:
                log.error("worker_given_up", deaths=deaths, **facts)
                break
            log.error("worker_died", again_in=seconds, **facts)
            self._on_change()
            self._stopping.wait(seconds)
        self._on_change()

    def _live(self) -> None:
        """One process, from its start to its end."""
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        try:
            process: Any = subprocess.Popen(self._command, text=True, **pipes)  # noqa: S603
        except OSError as error:
            log.error("worker_not_started", of=self.name, cause=str(error))
            self.exit_code = 1
            return
        self._pulse = Pulse(process.pid, self._patience)
        pumps = [
            threading.Thread(target=_pass_on, args=(process.stderr,), daemon=True),
            threading.Thread(target=self._listen, args=(process.stdout,), daemon=True),
        ]
        for pump in pumps:
            pump.start()
        with self._telling:
            self._process = process
        self.starts += 1
        log.info("worker_started", of=self.name, pid=process.pid)
        self.tell(self._first.rstrip())
        if self._stopping.is_set():
            self.tell("stop")
        code = process.wait()
        # A process that it started may outlive it and keep the pipes open.
        for pump in pumps:
            pump.join(LAST_WORDS_SECONDS)
        with self._telling, suppress(OSError):
            self._process = self._pulse = None
            process.stdin.close()
        self.exit_code = 128 - code if code < 0 else code
        self.ready, self.metrics_port = False, None

    def _listen(self, source: IO[str]) -> None:
        with source:
            for line in source:
                self._hear(line)

    def _hear(self, line: str) -> None:
        before = self.ready, self.metrics_port
        try:
            state = json.loads(line)
            self.ready, self.metrics_port = state["ready"], state["metrics_port"]
        except (ValueError, KeyError, TypeError):  # a library that prints
            _write(line.encode())
            return
        if pulse := self._pulse:
            pulse.heard(ready=self.ready)
        self.served = self.served or self.ready
        if before != (self.ready, self.metrics_port):
            self._on_change()


def _pass_on(source: IO[str]) -> None:
    """Write a process's log to our own, whole lines at a time, so that those of two never mix."""
    kept = b""
    with source:
        while data := os.read(source.fileno(), READ_BYTES):
            lines, end, rest = data.rpartition(b"\n")
            if end:
                _write(kept + lines + end)
                kept = rest
            else:
                kept += data
    if kept:
        _write(kept + b"\n")


def _cpu_seconds(pid: int) -> float:
    """Processor time of a process so far; NaN where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.nan
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _write(data: bytes) -> None:
    """Write lines to our log; they are lost where it takes none, as on a full disk."""
    with WRITING, suppress(OSError):
        sys.stderr.flush()
        while data:
            data = data[os.write(STDERR, data) :]
