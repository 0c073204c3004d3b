"""A worker process is heard, told and started again, and given up when that does not help."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import processes
import pytest
from acpc_server import worker_process
from acpc_server.worker_process import WorkerProcess, program
from structlog.testing import capture_logs
from waiting import wait_until

pytestmark = pytest.mark.process
SERVE = """
import json, sys
first = json.loads(sys.stdin.readline())
print("a library prints this", flush=True)
print(json.dumps({"ready": True, "metrics_port": first["port"]}), flush=True)
"""
UNTIL_STOPPED = SERVE + "sys.exit(0 if sys.stdin.readline() == 'stop\\n' else 3)"
ANSWERING = """
import json, sys
for line in sys.stdin:
    port = 7 if line.startswith("{") else int(line.split()[1])
    print(json.dumps({"ready": True, "metrics_port": port}), flush=True)
"""
CHATTY = ANSWERING.replace("    port", "    print('a library prints this')\n    port")
WITH_HEIR = """
import json, signal, subprocess, sys
sys.stdin.readline()
subprocess.Popen([sys.executable, "-c", "input(); input()"])
print(json.dumps({"ready": True, "metrics_port": 7}), flush=True)
signal.pause()
"""
# More than a pipe holds, while our own log goes on.
LONG_LINES = """
import threading, time, structlog
from acpc_server import worker_process
from acpc_server.observe import configure_logs
configure_logs("INFO", "json", "supervisor")
line = b"x" * 300_000 + b"\\n"
writing = threading.Thread(target=lambda: [worker_process._write(line) for _ in range(20)])
writing.start()
while writing.is_alive():
    structlog.get_logger("acpc.supervisor").info("ours")
    time.sleep(0.001)
"""
DIE_SOON = SERVE + "print('dying', file=sys.stderr, end=''); sys.exit(9)"


@contextmanager
def worker(
    program: str, python: str = sys.executable, **options: object
) -> Iterator[WorkerProcess]:
    given = {"back_off": 0.001, "most": 3, **options}
    command = [python, "-I", "-S", "-c", program]
    one = WorkerProcess("one", command, {"port": 7}, lambda: None, **given)
    one.start()
    try:
        yield one
    finally:
        one.stop()
        one.kill()
        wait_until(lambda: one.over)


def test_its_state_is_heard_and_it_stops_when_told() -> None:
    with worker(UNTIL_STOPPED) as one:
        wait_until(lambda: one.ready)
        assert one.metrics_port == 7
        one.stop()
        wait_until(lambda: one.over)
        assert (one.exit_code, one.starts, one.given_up) == (0, 1, False)
        assert not one.ready


def test_one_that_dies_is_started_again() -> None:
    with worker(UNTIL_STOPPED) as one:
        wait_until(lambda: one.ready)
        one.kill()
        wait_until(lambda: one.starts == 2 and one.ready)
        assert not one.given_up


def test_one_that_dies_again_and_again_is_given_up() -> None:
    with worker(DIE_SOON) as one:
        wait_until(lambda: one.over)
        assert (one.given_up, one.starts, one.exit_code) == (True, 3, 9)


def test_one_that_served_for_long_before_it_died_is_not_given_up() -> None:
    with worker(DIE_SOON, steady=0.0) as one:
        wait_until(lambda: one.starts > 4)


def test_one_that_never_serves_is_given_up_at_once() -> None:
    with worker("import os, signal; os.kill(os.getpid(), signal.SIGKILL)") as one:
        wait_until(lambda: one.over)
        assert (one.given_up, one.starts, one.exit_code) == (True, 1, 128 + 9)


@pytest.mark.parametrize("module", ["serving", "supervisor"])
def test_an_interrupt_while_it_loads_shows_no_traceback(module: str, tmp_path: Path) -> None:
    (tmp_path / "structlog.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    given = {"env": {**os.environ, "PYTHONPATH": str(tmp_path)}, "check": False}
    ended = processes.run(program(f"acpc_server.{module}"), **given)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_it_writes_whole_lines_to_our_log(capfd: pytest.CaptureFixture[str]) -> None:
    with worker(DIE_SOON, most=2) as one:
        wait_until(lambda: one.over)
    lines = capfd.readouterr().err.splitlines()
    assert lines.count("dying") == 2
    assert lines.count("a library prints this") == 2


def test_a_line_longer_than_a_pipe_is_whole_beside_our_own() -> None:
    lines = processes.run([sys.executable, "-c", LONG_LINES]).stderr.splitlines()
    ours = [line for line in lines if not line.startswith("x")]
    assert {json.loads(line)["event"] for line in ours} == {"ours"}
    assert sorted({len(line) for line in lines if line not in ours}) == [300_000]
    assert len(lines) - len(ours) == 20


@pytest.mark.parametrize(
    ("program", "serves"),
    [(SERVE + "[sys.stdin.readline() for _ in iter(int, 1)]", True), ("input(); input()", False)],
    ids=["while it serves", "while it starts"],
)
def test_one_that_hangs_is_killed(program: str, *, serves: bool) -> None:
    with worker(program, patience=(100.0 if serves else 0.1, 0.1)) as one:

        def asked() -> bool:
            one.ask("well?")
            return one.starts == 2 if serves else one.over

        wait_until(lambda: one.ready or not serves)
        wait_until(asked)
        assert one.exit_code == 128 + 9
        assert one.given_up is not serves


def test_one_that_answers_is_asked_for_ever() -> None:
    with worker(ANSWERING) as one:
        wait_until(lambda: one.ready)
        for port in range(8, 20):
            one.ask(f"port {port}")
            wait_until(lambda port=port: one.metrics_port == port)
        assert one.starts == 1


@pytest.mark.parametrize(
    ("ready", "load", "step", "looks"),
    [
        (True, 0.0, 1.0, 11),
        (True, 0.5, 1.0, 61),
        (True, float("nan"), 1.0, 61),
        (False, 0.5, 1.0, 301),
        (True, 0.0, 3600.0, 6),  # the host sleeps between any two looks
    ],
)
def test_silence_counts_as_far_as_both_could_run(
    monkeypatch: pytest.MonkeyPatch, *, ready: bool, load: float, step: float, looks: int
) -> None:
    now = [100.0]
    monkeypatch.setattr(worker_process.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(worker_process, "_cpu_seconds", lambda _: load * now[0])
    pulse = worker_process.Pulse(1, (300.0, 10.0))
    pulse.hangs()
    pulse.heard(ready=ready)
    counted = 0
    while not pulse.hangs():
        now[0] += step
        counted += 1
    assert abs(counted - looks) <= 1


def test_its_end_is_seen_though_a_process_that_it_started_holds_its_pipes() -> None:
    with worker(WITH_HEIR) as one:
        wait_until(lambda: one.ready)
        one.kill()
        wait_until(lambda: one.starts == 2)


def test_a_program_that_does_not_exist_is_a_death() -> None:
    with capture_logs() as logs, worker(SERVE, "/nowhere/python") as one:
        wait_until(lambda: one.over)
        assert (one.given_up, one.starts, one.exit_code) == (True, 0, 1)
    told = {line["event"]: line for line in logs}
    assert "/nowhere/python" in told["worker_not_started"]["cause"]
    assert told["worker_given_up"]["exit_code"] == 1


def test_one_that_cannot_be_started_again_is_tried_again(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    with capture_logs() as logs, worker(UNTIL_STOPPED, str(python), most=10**6) as one:
        wait_until(lambda: one.ready)
        python.unlink()
        one.kill()
        wait_until(lambda: "worker_not_started" in [line["event"] for line in logs])
        python.symlink_to(sys.executable)
        wait_until(lambda: one.ready)


def test_a_full_disk_costs_the_lines_of_its_time_and_no_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    later = tmp_path / "log"
    with Path("/dev/full").open("wb") as full, later.open("wb") as file:
        monkeypatch.setattr(worker_process, "STDERR", full.fileno())
        with worker(CHATTY) as one:
            wait_until(lambda: one.ready)
            monkeypatch.setattr(worker_process, "STDERR", file.fileno())
            one.ask("port 8")
            wait_until(lambda: one.metrics_port == 8)
            assert later.read_text() == "a library prints this\n"
