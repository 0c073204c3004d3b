"""The ``acpc`` program: interrupts, terminals, and a stdout that takes nothing."""

import contextlib
import os
import pty
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import processes
import pytest
import typer
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import AcpcClient
from acpc_command import acpc_command
from acpc_lab.cli.options import interruptible, left_soon
from client_counterparty import Counterparty
from client_fixtures import BLOCKS, HISTORY
from client_messages import operation, score_response
from job_counterparty import JobParty
from score_scripts import NAME, SCORE
from waiting import GENEROUS_SECONDS, wait_until

SWEEP, WATCH = ["sweep", "run", "mine.yaml"], ["watch", "run/", "--sweep", "gate.yaml"]
GO_ON = [
    (SCORE, (f"acpc show job {NAME} --wait", f"acpc cancel {NAME}")),
    (SWEEP, ("go on:      acpc sweep run mine.yaml",)),
    (WATCH, ("interrupted: jobs go on at the server",)),
]


def started(words: list[str], **options: Any) -> Any:
    """The program on its way."""
    return processes.running([str(Path(sys.executable).with_name("acpc")), *words], **options)


@pytest.mark.process
@pytest.mark.parametrize(("command", "words"), GO_ON, ids=["score", "sweep", "watch"])
def test_an_interrupt_leaves_the_jobs_and_says_how_to_go_on(
    command: list[str], words: tuple[str, ...], many: JobParty
) -> None:
    many.looks, first = 10**6, ""
    many.stalled.set()
    with started(command, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: len(many.jobs) == 1 + (command != SCORE))
        if command == SCORE:
            first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, shown = process.communicate(timeout=GENEROUS_SECONDS)
    assert process.returncode == 130
    assert all(part in shown for part in words) and "Traceback" not in shown
    assert not many.requests["CancelOperation"]
    if command == SCORE:
        assert first == f"{NAME}: submitted\n", "before anything can fail"
        return
    for job in many.jobs.values():
        job.looks = 0
    acpc_command()(*command, *(["--once"] if command == WATCH else []))
    assert len(many.jobs) == 2, "the same command goes on"


@pytest.mark.process
def test_a_full_stdout_is_one_line(target: str) -> None:
    """Of a long listing, a help, what prints while it talks to the server, and what is flushed."""
    np.savez(Path("pair.npz"), history=HISTORY, action_blocks=BLOCKS)
    compare = ["compare", "a", "--shift", "blur:15", "--input", str(Path("pair.npz"))]
    with Path("/dev/full").open("w") as full:
        for asked in (["list", "shifts"], ["score", "--help"], compare, ["--version"]):
            pipes = {"stdout": full, "stderr": subprocess.PIPE, "text": True}
            with started(asked, env={**os.environ, "ACPC_TARGET": target}, **pipes) as process:
                _, shown = process.communicate(timeout=GENEROUS_SECONDS)
            said = "error: FAILED_PRECONDITION: stdout: No space left on device\n"
            assert (process.returncode, shown) == (1, said), asked


@pytest.mark.process
@pytest.mark.parametrize("asked", [["list", "shifts"], ["--version"]])
def test_a_reader_that_leaves_is_no_error(asked: list[str]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with started(asked, stdout=theirs, stderr=subprocess.PIPE, text=True) as process:
        os.close(theirs)
        _, shown = process.communicate(timeout=GENEROUS_SECONDS)
    assert (process.returncode, shown) == (1, "")


@pytest.mark.process
def test_a_closed_stdout_is_one_line() -> None:
    command = shlex.join([str(Path(sys.executable).with_name("acpc")), "list", "shifts"])
    closed = ["sh", "-c", f"exec {command} >&-"]
    with processes.running(closed, stderr=subprocess.PIPE, text=True) as process:
        _, shown = process.communicate(timeout=GENEROUS_SECONDS)
    said = "error: FAILED_PRECONDITION: stdout: Bad file descriptor\n"
    assert (process.returncode, shown) == (1, said)


@pytest.mark.process
def test_a_terminal_gets_a_live_bar_and_the_same_exit_code(
    target: str, counterparty: Counterparty
) -> None:
    failed = score_response(pb.OUTCOME_FAILED)
    counterparty.script.extend([operation(NAME, 1), operation(NAME, 4, response=failed)])
    environment = {**os.environ, "ACPC_TARGET": target, "TERM": "xterm", "COLUMNS": "120"}
    ours, theirs = pty.openpty()
    with started(SCORE, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        answer, _ = process.communicate(timeout=GENEROUS_SECONDS)
    shown = b""
    with contextlib.suppress(OSError):  # Linux ends a terminal without writers with EIO
        while chunk := os.read(ours, 4096):
            shown += chunk
    os.close(ours)
    assert process.returncode == 3
    assert b"\x1b[" in shown
    assert "encoding anchors" in shown.decode()
    assert "4/4" in shown.decode()
    assert b"FAILED: what decided" in answer
    assert b"\x1b[" not in answer


def test_a_client_that_cannot_close_is_left() -> None:
    """As gRPC's does not, where a signal came between a call and the thread that ends it."""

    class Stuck(AcpcClient):
        def close(self) -> None:
            threading.Event().wait()

    begun = time.monotonic()
    with left_soon(Stuck("localhost:1")):
        pass
    assert time.monotonic() - begun < GENEROUS_SECONDS


def test_an_interrupt_that_a_library_swallows_comes_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as left, interruptible(["interrupted: go on"]):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        begun = time.monotonic()
        time.sleep(GENEROUS_SECONDS)
    assert time.monotonic() - begun < GENEROUS_SECONDS, "it ends a wait too"
    assert left.value.exit_code == 130
    assert capsys.readouterr().err == "interrupted: go on\n"
