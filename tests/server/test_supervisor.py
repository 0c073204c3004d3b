"""The supervisor's own part: what it does at a signal that comes while it talks to a worker."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from acpc_server import supervisor
from acpc_server.settings import Settings
from acpc_server.supervisor import Supervisor
from structlog.testing import capture_logs

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


class Stayer(TalkedTo):
    """A worker that stays when it is told to leave, and for some time when it is killed."""

    kills = 0

    def ask(self, line: str) -> None:
        if not self.kills and not self.lines:
            os.kill(os.getpid(), signal.SIGTERM)

    def stop(self) -> None:
        self.lines.append("stop")

    def kill(self) -> None:
        self.kills += 1
        self.over = self.kills == 3


def supervised(worker: TalkedTo, folder: Path, **settings: float) -> Supervisor:
    folders = {"checkpoint_root": folder, "dataset_root": folder, "state_dir": folder}
    given = Settings(devices="cpu,cpu", port=0, metrics_port=-1, **folders, **settings)
    made = Supervisor(given)
    made.workers[:] = [worker]
    return made


def test_a_signal_in_the_middle_of_a_line_waits_for_its_end(tmp_path: Path) -> None:
    worker = TalkedTo()
    assert supervised(worker, tmp_path).run() == 0
    assert worker.lines == ["reload", "stop"]


def test_killing_one_that_stays_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "LEAVE_SECONDS", -1.0)
    monkeypatch.setattr(supervisor, "WAKE_SECONDS", 0.01)
    worker = Stayer()
    with capture_logs() as logs:
        supervised(worker, tmp_path, lame_duck_seconds=0, drain_seconds=0).run()
    assert worker.kills == 3
    assert [line["of"] for line in logs if line["event"] == "worker_killed"] == [["one"]]
