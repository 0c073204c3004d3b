"""The ``acpc`` command against a server on a socket: what it prints, and its exit codes."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import processes
import pytest
import typer
from acpc.v1 import scoring_service_pb2 as pb
from acpc_command import Acpc
from acpc_lab.cli.options import interruptible
from client_counterparty import Counterparty
from client_messages import operation, score_response
from result_documents import checked
from score_scripts import NAME, SCORE
from waiting import GENEROUS_SECONDS


@pytest.fixture
def pair(tmp_path: Path, history: np.ndarray, blocks: np.ndarray) -> Path:
    path = tmp_path / "pair.npz"
    np.savez(path, history=history, action_blocks=blocks, observed_future=history[:2])
    return path


def finished(outcome: int, **options: Any) -> list[Any]:
    response = score_response(outcome, **options)
    return [operation(NAME, 1), operation(NAME, 4, response=response)]


def test_compare_prints_a_row_per_view(acpc: Acpc, pair: Path, counterparty: Counterparty) -> None:
    answer = acpc(
        "compare", "a", "--input", pair, "--shift", "gaussian_noise:0.08",
        "--shift", "blur:15", "--draws", 2, "--protocol", "{seed: 9}",
    )  # fmt: skip
    rows = [line for line in answer.stdout.splitlines() if "1.5" in line]
    assert len(rows) == 4
    assert "gaussian_noise:0.08" in rows[0]
    assert "blur:15" in rows[3]
    assert "drift bound" in answer.stdout
    (sent,) = counterparty.requests["ComparePair"]
    assert (sent.perturbations.draws, sent.perturbations.seed) == (2, 9)


def test_compare_json_is_the_whole_answer(acpc: Acpc, pair: Path) -> None:
    shift = ["--shift", "resize:0.25"]
    answer = acpc("compare", "a", "--input", pair, *shift, "-o", "json")
    parsed = checked(answer.stdout)
    assert parsed["request"]["history"]["dtype"] == "uint8"
    assert parsed["request"]["perturbations"] == [{"kind": "resize", "scale": 0.25}]
    assert parsed["answer"]["results"][0]["step_distances"] == [1.25, 1.75]
    assert parsed["receipt"]["device"] == "cpu"


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_compare_takes_views_from_the_file(
    kind: type[np.generic], acpc: Acpc, tmp_path: Path, history: np.ndarray,
    blocks: np.ndarray, counterparty: Counterparty,
) -> None:  # fmt: skip
    path, views = tmp_path / "views.npz", np.ones((1, *history.shape), kind)
    np.savez(path, history=history, action_blocks=blocks, views=views)
    acpc("compare", "a", "--input", path)
    (sent,) = counterparty.requests["ComparePair"]
    assert sent.explicit_views.data == views.tobytes()
    both = acpc("compare", "a", "--input", path, "--shift", "identity", code=2)
    assert "both --shift and an array views" in both.stderr


def test_the_target_may_stand_before_the_command_or_after_it(
    acpc: Acpc, target: str, unused_target: str
) -> None:
    acpc("--target", target, "list", "checkpoints")
    before = acpc("--target", unused_target, "list", "checkpoints", code=1)
    assert before.stderr.startswith("error: UNAVAILABLE: ")
    assert f"no server answers at {unused_target}" in before.stderr, "it wins over ACPC_TARGET"
    acpc("--target", unused_target, "list", "checkpoints", "--target", target)


# A shell that starts a job in the background has interrupts ignored; a terminal has not.
ACPC = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from acpc_lab.cli import main; main()"
)


def scoring(target: str, **options: Any) -> Any:
    """The command on its way, as a terminal starts it."""
    environment = {**os.environ, "ACPC_TARGET": target, "TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-c", ACPC, *SCORE]
    return processes.running(command, env=environment, stdout=subprocess.PIPE, **options)


@pytest.mark.process
def test_an_interrupt_leaves_the_job_and_says_how_to_go_on(
    target: str, counterparty: Counterparty
) -> None:
    counterparty.stalled.set()
    counterparty.script.append(operation(NAME, 1))
    with scoring(target, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == f"{NAME}: submitted\n", "before anything can fail"
        assert "encoding anchors" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, shown = process.communicate(timeout=GENEROUS_SECONDS)
    assert process.returncode == 130
    assert f"acpc show job {NAME} --wait" in shown
    assert f"acpc cancel {NAME}" in shown
    assert "Traceback" not in shown
    assert not counterparty.requests["CancelOperation"]


def without_room(target: str, arguments: Sequence[object], stdout: int) -> tuple[int, str]:
    """Exit code and stderr of the command with a stdout that takes nothing."""
    with processes.running(
        [Path(sys.executable).with_name("acpc"), *map(str, arguments)],
        env={**os.environ, "ACPC_TARGET": target},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        _, shown = process.communicate(timeout=GENEROUS_SECONDS)
    return process.returncode, shown


COMPARE = ("compare", "a", "--shift", "blur:15", "--input")


@pytest.mark.process
def test_a_full_stdout_is_one_line(target: str, pair: Path) -> None:
    """Of a long listing, a help, what prints while it talks to the server, and what is flushed."""
    with Path("/dev/full").open("w") as full:
        for asked in (["list", "shifts"], ["score", "--help"], [*COMPARE, pair], ["--version"]):
            answer = without_room(target, asked, full.fileno())
            said = "error: FAILED_PRECONDITION: stdout: No space left on device\n"
            assert answer == (1, said), asked


@pytest.mark.process
def test_a_terminal_gets_a_live_bar_and_the_same_exit_code(
    target: str, counterparty: Counterparty
) -> None:
    counterparty.script.extend(finished(pb.OUTCOME_FAILED))
    ours, theirs = pty.openpty()
    with scoring(target, stderr=theirs) as process:
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
