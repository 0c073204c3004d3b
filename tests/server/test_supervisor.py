"""The supervisor's own part: what it does at a signal that comes while it talks to a worker."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from acpc_server.settings import Settings
from acpc_server.supervisor import Supervisor

pytestmark = pytest.mark.process


class TalkedTo:
    """A worker that takes one line at a time; its supervisor gets signals in the middle of one."""

    name, served, ready, given_up, metrics_port, starts = "one", True, True, False, None, 1
    over, exit_code = False, 0

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._talking = threading.Lock()

    def start(self) -> None: ...

    def tell(self, line: str) -> None:
        assert self._talking.acquire(blocking=False), "it would wait for itself"
        self.lines.append(line)
        self._talking.release()

    def ask(self, line: str) -> None:
        with self._talking:
            if "reload" not in self.lines:
                os.kill(os.getpid(), signal.SIGHUP)
            else:
                os.kill(os.getpid(), signal.SIGTERM)

    def stop(self) -> None:
        self.lines.append("stop")
        self.over = True


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (1, 2, 15)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_a_signal_in_the_middle_of_a_line_waits_for_its_end(tmp_path: Path) -> None:
    folders = {"checkpoint_root": tmp_path, "dataset_root": tmp_path, "state_dir": tmp_path}
    supervisor = Supervisor(Settings(devices="cpu,cpu", port=0, metrics_port=-1, **folders))
    worker = TalkedTo()
    supervisor.workers[:] = [worker]  # type: ignore[list-item]
    assert supervisor.run() == 0
    assert worker.lines == ["reload", "stop"]
