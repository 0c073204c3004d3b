"""A serving process from its start to its exit: a server of its own, or a worker of several.

Its ``main`` is a worker. Standard input gives its settings as a line of JSON,
then commands: ``stop``, ``hurry``, ``reload``, ``others 0|1``; it ends with its supervisor, whom it
does not outlive. It writes a line of JSON whenever its readiness changes, and after ``others``.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import NoReturn

import structlog

from acpc_server.app import Server, SignalEvent, wait_for_signal
from acpc_server.engine import choose_device, keep_freed_memory
from acpc_server.errors import AcpcError
from acpc_server.observe import configure_logs
from acpc_server.options import raise_open_files
from acpc_server.settings import Settings
from acpc_server.worker_process import program

log = structlog.get_logger("acpc.app")
# A thread that has the interpreter gives it up to another so soon. By default it is 5 ms, for which
# each operation of a request's device call may wait for a thread of a job.
SWITCH_SECONDS = 0.0005


def serve_until_stopped(settings: Settings, worker: str = "") -> NoReturn:
    """Serve until a signal, a failure or the supervisor ends it; exits the process.

    ``worker`` names one of several that share the port, which a supervisor started. Raises
    FailedPrecondition when the server cannot be built or started.
    """
    keep_freed_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    raise_open_files()
    configure_logs(settings.log_level, settings.log_format, worker)
    stop, hurry = SignalEvent(), SignalEvent()
    codes: list[int] = []

    def stop_or_hurry(*_: object) -> None:
        # Of a worker, the supervisor alone says when to hurry: a process manager signals all.
        (hurry if stop.is_set() and not worker else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):  # also while the server starts
        signal.signal(number, stop_or_hurry)

    def leave(code: int) -> None:
        codes.append(code)
        stop.set()

    # A hang-up reads certificates and keys again, and never ends the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    server = Server(settings, on_leave=leave, shares_port=bool(worker))
    signal.signal(signal.SIGHUP, lambda *_: server.access.reload())
    if worker:
        listening = (sys.stdin, server, stop, hurry)
        threading.Thread(target=_obey, args=listening, name="control", daemon=True).start()
    server.start()
    if worker:
        server.health.watch(lambda: _tell(server))
    # These objects stay; scanning them for garbage later would pause all calls.
    gc.collect()
    gc.freeze()
    wait_for_signal(stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    server.stop(hurry)
    # A job's thread may be inside a device call, which cannot be interrupted. Its shards are on
    # record and it resumes at the next start, so exit without waiting for it.
    sys.stdout.flush()
    logging.shutdown()
    os._exit(codes[0] if codes else 0)


def _obey(lines: Iterable[str], server: Server, stop: SignalEvent, hurry: SignalEvent) -> None:
    """Do what the supervisor commands, until its pipe ends."""
    for line in lines:
        word, _, value = line.strip().partition(" ")
        if word == "stop":
            stop.set()
        elif word == "hurry":
            hurry.set()
        elif word == "reload":
            server.access.reload()
        elif word == "others":
            server.know_others(ready=value == "1")
            _tell(server)
    if not stop.is_set():
        log.warning("supervisor_gone")
    stop.set()
    hurry.set()


def _tell(server: Server) -> None:
    line = {"ready": server.health.ready, "metrics_port": server.metrics_port}
    with suppress(BrokenPipeError):  # of a supervisor that is gone: the end of its pipe says so
        os.write(sys.stdout.fileno(), f"{json.dumps(line)}\n".encode())  # at once: two threads tell


def supervise(settings: Settings) -> NoReturn:
    """Become the supervisor of a worker a device; FailedPrecondition when one does not exist."""
    for name in settings.devices.split(","):
        choose_device(name, f"--devices {settings.devices}:")
    given, text = os.pipe()
    with os.fdopen(text, "w") as file:
        file.write(settings.model_dump_json(exclude_unset=True))
    os.dup2(given, 0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # kept over the next line, until it is handled
    os.execv(sys.executable, program("acpc_server.supervisor"))  # noqa: S606


def main() -> None:
    """Entry point of a worker."""
    first = json.loads(sys.stdin.readline())
    try:
        serve_until_stopped(Settings(**first["settings"]), first["worker"])
    except AcpcError as error:
        log.error("cannot_start", code=error.code, why=error.message)
        logging.shutdown()
        os._exit(1)  # the thread that listens to the supervisor would hang a longer way out
