"""The supervisor of ``serve --devices``: a worker process a device, all on one port.

Every worker listens on the port itself (SO_REUSEPORT) and the system spreads connections over them.
The supervisor keeps the port, starts workers again, forwards signals, and answers on the metrics
port for all. It imports no torch, so whatever takes a worker down leaves it standing.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from acpc_server.errors import FailedPrecondition
from acpc_server.observe import HttpEndpoint, ServerHealth, WorkerSeries, configure_logs
from acpc_server.settings import Settings
from acpc_server.worker_process import WorkerProcess, program

log = structlog.get_logger("acpc.supervisor")
COMMAND = program("acpc_server.serving")
NAME = "supervisor"
WAKE_SECONDS = 1.0
# What a worker may take to leave beyond its lame duck and its drain.
LEAVE_SECONDS = 30.0


class Supervisor:
    """Starts the workers of some settings and answers for them; FailedPrecondition: port taken."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._kept = _keep_port(settings.host, settings.port)
        self.port = int(self._kept.getsockname()[1])
        self.health = ServerHealth()
        # Handlers of signals may interrupt anything here, so they take no lock.
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._signals = 0
        self._reload = False
        devices = settings.devices.split(",")
        self.workers = [
            WorkerProcess(name, COMMAND, self._first(number, name), self._wake)
            for number, name in enumerate(_names(devices))
        ]
        registry = CollectorRegistry()
        token = self._token if settings.metrics_token_file else None
        registry.register(WorkerSeries(self.workers, token))
        self._http = HttpEndpoint(registry, self.health, token)

    def run(self) -> int:
        """Run all workers until a signal or until none is left; returns the exit code.

        Raises FailedPrecondition when the metrics port is taken.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        signal.signal(signal.SIGHUP, self._hung_up)
        metrics_port = self._listen()
        # The first one makes the job record, before others come to it.
        self.workers[0].start()
        begun = serving = False
        while not self._signals and not self._failed(serving):
            if not begun and self.workers[0].served:
                begun = True
                for worker in self.workers[1:]:
                    worker.start()
            if not serving and all(worker.served for worker in self.workers):
                serving = True
                log.info(
                    "serving",
                    host=self._settings.host,
                    port=self.port,
                    metrics_port=metrics_port,
                    workers=[worker.name for worker in self.workers],
                )
            self._look()
        code = 0 if self._signals else self._failure()
        left = self._stop()
        self._http.stop()
        self._kept.close()
        log.info("stopped")
        return code or left

    def _failed(self, serving: bool) -> bool:
        """Tell whether to give up: no worker is left, or one could never serve."""
        given_up = [worker.given_up for worker in self.workers]
        return all(given_up) if serving else any(given_up)

    def _failure(self) -> int:
        (*_, last) = [worker for worker in self.workers if worker.given_up]
        if last.served:
            log.error("no_worker_left", of=last.name)
        else:
            log.error("worker_cannot_start", of=last.name)
        return last.exit_code or 1

    def _signalled(self, *_: object) -> None:
        self._signals += 1
        self._wake()

    def _hung_up(self, *_: object) -> None:
        self._reload = True
        self._wake()

    def _wake(self) -> None:
        self._wakes.put(None)

    def _look(self) -> None:
        """Wait for a change or a moment, and tell workers what has changed."""
        with suppress(queue.Empty):
            self._wakes.get(timeout=WAKE_SECONDS)
            while True:
                self._wakes.get_nowait()
        if self._reload:
            self._reload = False
            self._tell_all("reload")
        self._tell_health()

    def _stop(self) -> int:
        """Have all leave, sooner after a further signal; returns the highest exit code."""
        before, settings = self._signals, self._settings
        self.health.block("draining", "the server stops")
        for worker in self.workers:
            worker.stop()
        end = time.monotonic() + settings.lame_duck_seconds + settings.drain_seconds + LEAVE_SECONDS
        hurried = killed = False
        while any(not worker.over for worker in self.workers):
            self._look()
            if not hurried and self._signals > max(before, 1):
                hurried = True
                self._tell_all("hurry")
            if time.monotonic() > end:
                late = [worker for worker in self.workers if not worker.over]
                if not killed:
                    log.error("worker_killed", of=[x.name for x in late], why="it did not leave")
                killed = True
                for worker in late:
                    worker.kill()
        return max(worker.exit_code or 0 for worker in self.workers)

    def _tell_all(self, line: str) -> None:
        for worker in self.workers:
            worker.tell(line)

    def _tell_health(self) -> None:
        """Answer probes for all: ready while any worker is; each worker learns of the others."""
        ready = {worker.name for worker in self.workers if worker.ready}
        if ready:
            self.health.clear("starting")
            self.health.clear("workers")
        else:
            self.health.block("workers", "no worker takes calls")
        for worker in self.workers:
            worker.ask(f"others {int(bool(ready - {worker.name}))}")

    def _listen(self) -> int | None:
        settings = self._settings
        if settings.metrics_port < 0:
            return None
        try:
            return self._http.start(settings.metrics_host, settings.metrics_port)
        except OSError as error:
            raise FailedPrecondition(
                f"cannot serve /metrics on {settings.metrics_host}:{settings.metrics_port} "
                f"({error.strerror}); choose another --metrics-port, 0 picks a free one"
            ) from error

    def _token(self) -> str:
        file = self._settings.metrics_token_file
        return file.read_text().strip() if file else ""

    def _first(self, number: int, name: str) -> dict[str, Any]:
        """Return the first line for a worker: its name, and the settings with what is its own."""
        settings = self._settings
        devices = settings.devices.split(",")
        threads = 0
        if devices[number] == "cpu":
            threads = max(1, len(os.sched_getaffinity(0)) // devices.count("cpu"))
        own = {
            "device": devices[number],
            "devices": "",
            "port": self.port,
            "state_dir": settings.state_dir / f"worker-{number}",
            "executor_id": settings.executor_id and f"{settings.executor_id}-{number}",
            "jobs_url": settings.database_url,
            "anchor_dir": settings.anchor_folder,
            "torch_threads": settings.torch_threads or threads,
            "metrics_host": "127.0.0.1",
            "metrics_port": min(0, settings.metrics_port),
        }
        given = settings.model_dump(mode="json", exclude_unset=True)
        return {"worker": name, "settings": {**given, **json.loads(json.dumps(own, default=str))}}


def _names(devices: Sequence[str]) -> Iterator[str]:
    """Name each worker by its device, numbered where several have the same."""
    for number, device in enumerate(devices):
        yield device if devices.count(device) == 1 else f"{device}-{number}"


def _keep_port(host: str, port: int) -> socket.socket:
    """Keep a port for this user's workers with a socket that gets no connection itself.

    Raises FailedPrecondition for a port that is taken, also by a server that would share it.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind(address)
            alone.listen()
        kept = socket.socket(family, socket.SOCK_STREAM)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind(address)
    except OSError as error:
        raise FailedPrecondition(
            f"cannot listen on {host}:{port} ({error.strerror}); choose another --port, 0 picks a "
            "free one"
        ) from error
    return kept


def main() -> None:
    """Entry point: the settings come as one line of JSON on standard input."""
    settings = Settings(**json.loads(sys.stdin.readline()))
    # Workers are given every setting; the variables would be read again there.
    for name in [name for name in os.environ if name.upper() in _VARIABLES]:
        del os.environ[name]
    configure_logs(settings.log_level, settings.log_format, NAME)
    try:
        code = Supervisor(settings).run()
    except FailedPrecondition as error:
        log.error("cannot_start", code=error.code, why=error.message)
        code = 1
    logging.shutdown()
    os._exit(code)


_VARIABLES = {f"ACPC_{name.upper()}" for name in Settings.model_fields}
