"""Programs that tests start, none of which outlives the test run, however either ends."""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from waiting import GENEROUS_SECONDS
from zygote import Forked, Zygote, zygote_for

# Reads "+group" and "-group" lines, and ends the groups that are left once the pipe closes: the
# kernel closes it when this process ends, by a signal that cannot be caught too.
_GUARD = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""
# Set for tests of the unit tier, which start no program.
forbidden = False
# Set for tests: programs of ours are forked, and not started, where that comes to the same.
forks = False
_lock = threading.Lock()
_guard: subprocess.Popen[bytes] | None = None
_running: dict[int, str] = {}
zygotes: dict[str, Zygote] = {}


def start(
    command: Sequence[str | Path],
    *,
    fresh: bool = False,
    imported: str = "",
    **options: Any,
) -> subprocess.Popen[Any]:
    """Start a program in a process group of its own; ``end`` must be called in the end.

    With :data:`forks`, ``acpc`` and ``acpc-server`` are forked from a process that has imported
    them, unless ``fresh`` is true or they need an environment that is read by imports; and so is
    ``python -c CODE`` that runs with what the program ``imported`` has.
    """
    assert not forbidden, "a test that starts a program is marked process or slow"
    found = imported or zygote_for(command, options.get("env") or os.environ)
    name = "" if fresh or not forks else found
    if name:
        process: subprocess.Popen[Any] = Forked(_zygote(name), command, **options)
    else:
        process = subprocess.Popen(command, process_group=0, **options)
    with _lock:
        _running[process.pid] = " ".join(map(str, command))
        _tell_guard(f"+{process.pid}")
    return process


def _zygote(name: str) -> Zygote:
    """The zygote of a program, started once."""
    with _lock:
        if name not in zygotes:
            made = zygotes[name] = Zygote(name)
            _tell_guard(f"+{made.pid}")
            atexit.register(made.end)
        return zygotes[name]


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a program and all that it has started, if they still run."""
    with _lock:
        if _running.pop(process.pid, None) is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _tell_guard(f"-{process.pid}")


@contextlib.contextmanager
def running(
    command: Sequence[str | Path],
    **options: Any,
) -> Iterator[subprocess.Popen[Any]]:
    process = start(command, **options)
    try:
        yield process
    finally:
        end(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def run(
    command: Sequence[str | Path],
    *,
    check: bool = True,
    seconds: float = 2 * GENEROUS_SECONDS,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and read what it wrote, as text.

    Raises:
        AssertionError: It failed, with what it wrote; unless ``check`` is false.
        subprocess.TimeoutExpired: It took longer than ``seconds``.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with running(command, **pipes, **options) as process:
        out, err = process.communicate(timeout=seconds)
    assert not check or process.returncode == 0, f"{command[0]} wrote:\n{out}\n{err}"
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def left_running() -> list[str]:
    """Programs started here that were not ended, and other children of this process."""
    known = {zygote.pid for zygote in zygotes.values()}
    if _guard is not None:
        known.add(_guard.pid)
    found = dict(_running)
    for task in Path("/proc/self/task").glob("*/children"):
        for pid in map(int, _text(task).split()):
            command = _text(Path(f"/proc/{pid}/cmdline")).replace("\0", " ")
            # Python's own helper of multiprocessing lasts as long as the process.
            if pid not in known and "resource_tracker" not in command:
                found.setdefault(pid, command)
    return [f"{pid}: {command}" for pid, command in found.items()]


def _text(path: Path) -> str:
    """What a file of /proc says; nothing when its thread or program has just ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _tell_guard(line: str) -> None:
    """Tell the guard of this process, which starts with its first line."""
    global _guard  # noqa: PLW0603
    if _guard is None:
        _guard = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARD],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        atexit.register(_guard.communicate)  # closes the pipe, and waits
    _guard.stdin.write(line.encode() + b"\n")
    _guard.stdin.flush()
