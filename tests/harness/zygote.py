"""Forks programs of ours from a process that has imported them: a start without its imports.

This file is both sides: the module that tests import, and the process, a zygote, one for each kind
of program and process of the test run. A zygote has one thread, so that what it forks is whole.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
MAX_REQUEST = 2**20
MAIN = {"acpc-server": "acpc_server.__main__", "acpc": "acpc_lab.__main__"}
# What each kind imports, besides what these import.
IMPORTED = {
    "acpc-server": ("acpc_server.cli", "sqlalchemy.dialects.sqlite"),
    "acpc": tuple(f"acpc_lab.cli.{name}" for name in ("main", "score", "sweep")),
}
# Variables, or what they begin with, that libraries read once: when they are imported. PYTHONPATH
# counts for plug-ins, which the server looks for when it needs them.
READ = (
    *("OMP_", "GOMP_", "MKL_", "ATEN_", "CUDA", "GRPC_", "LD_", "MALLOC_", "PYTHON"),
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM", "LANG", "LC_"),
)
# One thread each, as the programs have: what is imported here reads it once.
_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
_lock = threading.Lock()
_libc = ctypes.CDLL(None)


def zygote_for(command: Sequence[str | Path], environment: Mapping[str, str]) -> str:
    """The zygote that can run a command; '' for none.

    One whose environment differs in a variable of :data:`READ` needs a start of its own.
    """
    name = Path(command[0]).name
    if name not in MAIN or Path(command[0]).parent != Path(sys.executable).parent:
        return ""
    return name if _read(environment) == _read(_ENVIRONMENT) else ""


def _read(environment: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in environment.items() if name.startswith(READ)}
    found.pop("PYTHONPATH", None)
    return found


class Zygote:
    """The process of one kind, started with its first fork; ends when its input does."""

    def __init__(self, name: str) -> None:
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, __file__, name, str(its.fileno())],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                env=_ENVIRONMENT,
                process_group=0,
            )
        self.pid = self._process.pid

    def end(self) -> None:
        """End the process; what it has forked goes on."""
        self._socket.close()
        self._process.wait()

    def fork(self, request: bytes, files: list[int]) -> int:
        with _lock:
            _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._socket, [request], files)
                return int(self._socket.recv(MAX_REQUEST))
            finally:
                _libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


class Forked(subprocess.Popen[Any]):
    """A program that a zygote has forked: a child of this process like any other."""

    def __init__(self, zygote: Zygote, command: Sequence[str | Path], **options: Any) -> None:
        self._zygote = zygote
        super().__init__(command, **options)

    def _execute_child(self, args: Sequence[str | Path], *given: Any) -> None:
        cwd, env = given[4], given[5]
        pipes = given[9:15]
        stdin, stdout, stderr = pipes[0], pipes[3], pipes[5]
        request = {
            "arguments": [str(part) for part in args],
            "cwd": str(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
        }
        files = [
            own if own >= 0 else inherited for inherited, own in enumerate((stdin, stdout, stderr))
        ]
        self.pid = self._zygote.fork(json.dumps(request).encode(), files)
        self._child_created = True
        self._close_pipe_fds(*pipes)


def _serve(zygote: socket.socket) -> list[str]:
    """Fork for every request; returns in the forked, with the program's arguments."""
    while True:
        request, files, _, _ = socket.recv_fds(zygote, MAX_REQUEST, 3)
        if not request:
            sys.exit()
        said, say = os.pipe()
        outer = os.fork()
        if outer == 0:
            inner = os.fork()
            if inner == 0:
                zygote.close()
                return _become(json.loads(request), files)
            os.setpgid(inner, inner)
            os.write(say, str(inner).encode())
            os._exit(0)
        os.waitpid(outer, 0)  # by now the program is a child of who asked
        for file in (say, *files):
            os.close(file)
        zygote.send(os.read(said, 32))
        os.close(said)


def _become(request: dict[str, Any], files: list[int]) -> list[str]:
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, max(files) + 8)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [entry for entry in path if entry and entry not in sys.path]
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    return request["arguments"]


def _prepare(name: str) -> None:
    for module in IMPORTED[name]:
        importlib.import_module(module)
    if name == "acpc-server":
        import torch
        from acpc_server.engine import self_test

        self_test(torch.device("cpu"))  # at every start; quicker the second time
    gc.collect()
    gc.freeze()
    threads = os.listdir("/proc/self/task")  # noqa: PTH208
    assert len(threads) == 1, f"{len(threads)} threads: what is forked would lack all but one"


if __name__ == "__main__":
    _, of, number = sys.argv
    del sys.path[0]  # the harness, which programs do not see
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _prepare(of)
    sys.argv = _serve(socket.socket(fileno=int(number)))
    if sys.argv[0] == sys.executable:
        _, option, code, *sys.argv[1:] = sys.argv
        assert option == "-c", f"{option}: only python -c CODE is forked"
        exec(code, {"__name__": "__main__"})  # noqa: S102
    else:
        runpy.run_module(MAIN[of], run_name="__main__")
