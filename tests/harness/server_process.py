"""A server in a process of its own: ``acpc-server serve`` with its log read."""

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import processes
from waiting import GENEROUS_SECONDS

LogLine = dict[str, Any]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """One ``acpc-server serve`` process on free ports, stopped when the ``with`` block ends.

    Args:
        checkpoint_root: Value of ``--checkpoint-root``.
        dataset_root: Value of ``--dataset-root``.
        state_dir: Value of ``--state-dir``; start a second process on it to see a restart.
        environment: Variables to add to this process's.
        cwd: Working directory of the process.
        fresh: Whether it starts as an installed program does, instead of by ``zygote``.
        **flags: Further flags of ``serve``, for example ``max_message_mib=8``; True is a switch.
    """

    def __init__(
        self,
        checkpoint_root: Path,
        dataset_root: Path,
        state_dir: Path,
        *,
        environment: dict[str, str] | None = None,
        cwd: Path | None = None,
        fresh: bool = False,
        **flags: object,
    ) -> None:
        given: dict[str, object] = {
            "checkpoint_root": checkpoint_root, "dataset_root": dataset_root,
            "state_dir": state_dir, "port": 0, "metrics_port": 0, "device": "cpu",
            "lame_duck_seconds": 0, **flags,
        }  # fmt: skip
        program = Path(sys.executable).with_name("acpc-server")
        self.command = [str(program), "serve"]
        for name, value in given.items():
            self.command += [
                f"--{name.replace('_', '-')}",
                *([] if value is True else [str(value)]),
            ]
        self._cwd, self._fresh = cwd, fresh
        own = {"OMP_NUM_THREADS": "1", **(environment or {})}
        self._environment = {**os.environ, **own}
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lines: list[str] = []
        self._closed = False
        self._moved = threading.Condition()
        self.port = 0
        self.metrics_port: int | None = None

    def start(self) -> Self:
        """Start and return once it serves; RuntimeError with its log when it does not."""
        self._lines, self._closed = [], False
        self._process = processes.start(
            self.command,
            fresh=self._fresh,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
            cwd=self._cwd,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        try:
            serving = self.wait_for_log(lambda line: line["event"] == "serving")
        except BaseException:
            self.stop()
            raise
        self.port, self.metrics_port = serving["port"], serving["metrics_port"]
        return self

    def restart(self) -> Self:
        """Start again where it listened, as a server with an address of its own does."""
        self.command[self.command.index("--port") + 1] = str(self.port)
        return self.start()

    @property
    def address(self) -> str:
        """Target of a channel to this server."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def wait_for_log(self, wanted: Callable[[LogLine], bool]) -> LogLine:
        """The first log line that is ``wanted``, present or still to come.

        Raises:
            RuntimeError: The process ended, or far too much time passed, without such a line.
        """

        def found() -> list[LogLine]:
            return [line for line in self.log() if wanted(line)]

        with self._moved:
            self._moved.wait_for(lambda: found() or self._closed, GENEROUS_SECONDS)
        for line in found():
            return line
        raise RuntimeError("no such log line; the server wrote:\n" + "".join(self._lines))

    def log(self) -> list[LogLine]:
        return [_parsed(line) for line in list(self._lines)]

    def metrics(self) -> str:
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=GENEROUS_SECONDS) as page:
            return str(page.read().decode())

    def bugs(self) -> list[str]:
        """Faults of its own that the server has logged so far; a sound one has none."""
        faults = ("rpc_bug", "job_step_failed", "lease_failed")
        return [str(line.get("exception")) for line in self.log() if line["event"] in faults]

    def wait(self) -> int:
        """The exit code of a process that ends by itself."""
        return self._ended()

    def kill(self) -> None:
        processes.end(self._running())
        self._ended()

    def terminate(self) -> int:
        self._running().terminate()
        return self._ended()

    def stop(self) -> None:
        """End the process and all that it has started, if it was started at all."""
        if self._process is not None:
            self.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process

    def _ended(self) -> int:
        process = self._running()
        try:
            return process.wait(GENEROUS_SECONDS)
        finally:
            processes.end(process)
            if self._reader is not None:
                self._reader.join()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                with self._moved:
                    self._lines.append(line)
                    self._moved.notify_all()
        with self._moved:
            self._closed = True
            self._moved.notify_all()


def _parsed(line: str) -> LogLine:
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) and "event" in value else {"event": line.rstrip()}
