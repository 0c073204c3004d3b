"""The ``acpc`` command against a server on a socket: what it prints, and its exit codes."""

# ruff: noqa: ANN401 - a command answers whatever the runner recorded

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import processes
import pytest
from acpc.v1 import scoring_service_pb2 as pb
from acpc_command import Acpc
from client_counterparty import Counterparty
from client_messages import operation, score_response, status
from google.rpc import error_details_pb2
from result_documents import checked
from test_score_gates import NAME, SCORE, ended
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
        "compare", "--input", pair, "--checkpoint", "a", "--shift", "gaussian_noise:0.08",
        "--shift", "blur:15", "--draws", 2, "--seed", 9,
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
    answer = acpc("compare", "--input", pair, "--checkpoint", "a", *shift, "--json")
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
    acpc("compare", "--input", path, "--checkpoint", "a")
    (sent,) = counterparty.requests["ComparePair"]
    assert sent.explicit_views.data == views.tobytes()
    both = acpc("compare", "--input", path, "--checkpoint", "a", "--shift", "identity", code=2)
    assert "both --shift and an array views" in both.stderr


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"history": np.zeros(3)}, "missing action_blocks"),
        ({"history": np.zeros(1), "action_blocks": np.zeros(1), "extra": 1}, "unknown extra"),
        ({"history": np.array([{}]), "action_blocks": np.zeros(1)}, "plain arrays"),
        ({"history": np.zeros((3, 4, 5, 3)), "action_blocks": np.zeros((4, 2))}, "float64"),
    ],
)
def test_a_wrong_file_is_a_usage_error(
    arrays: dict[str, Any], words: str, acpc: Acpc, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.npz"
    np.savez(path, **arrays)
    answer = acpc("compare", "--input", path, "--checkpoint", "a", "--shift", "identity", code=2)
    assert words in answer.stderr


def test_the_target_may_stand_before_the_command_or_after_it(
    acpc: Acpc, target: str, unused_target: str
) -> None:
    acpc("--target", target, "checkpoints", "list")
    before = acpc("--target", unused_target, "checkpoints", "list", code=1)
    assert before.stderr.startswith("error: UNAVAILABLE: ")
    assert f"no server answers at {unused_target}" in before.stderr, "it wins over ACPC_TARGET"
    acpc("--target", unused_target, "checkpoints", "list", "--target", target)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (finished(pb.OUTCOME_INCONCLUSIVE, with_reference=False, sr_passed=False), 3),
        (finished(pb.OUTCOME_UNSPECIFIED), 1),
        ([operation(NAME, error=status(grpc.StatusCode.INTERNAL, "it broke"))], 4),
        ([operation(NAME, error=status(grpc.StatusCode.CANCELLED, "withdrawn"))], 4),
    ],
    ids=["sr fails", "no outcome", "broke", "cancelled"],
)
@pytest.mark.parametrize(
    "command", [SCORE, ["operations", "watch", "mine"]], ids=["score", "watch"]
)
def test_the_exit_code_is_the_verdict(
    command: list[str], script: list[Any], code: int, acpc: Acpc, counterparty: Counterparty
) -> None:
    counterparty.script.extend(script)
    acpc(*command, code=code)


def test_score_shows_progress_table_and_verdict_in_words(
    acpc: Acpc, counterparty: Counterparty, tmp_path: Path
) -> None:
    counterparty.script.extend(finished(pb.OUTCOME_FAILED))
    output = tmp_path / "score.json"
    protocol = ["--anchors", 20, "--draws", 3, "--t-ir", 0.2, "--output", output]
    answer = acpc(*SCORE, *protocol, code=3)
    assert "encoding anchors 1/4, 1 min 15 s left" in answer.stderr
    assert "FAILED: what decided the outcome" in answer.stdout
    assert "IR relative" in answer.stdout
    assert "trained (reference)" in answer.stdout
    assert checked(output.read_text())["answer"]["verdict"]["outcome"] == "failed"
    (sent,) = counterparty.requests["ScoreCheckpoint"]
    assert (sent.dataset.count, sent.protocol.draws, sent.thresholds.ir) == (20, 3, 0.2)
    assert not sent.dataset.HasField("seed")


@pytest.mark.parametrize(
    ("floor", "shown", "warned"),
    [(0.0021, "0.0021", False), (0.06, "0.06", True), (0.0, "0", False), (None, "-", False)],
)
def test_score_shows_the_rounding_floor_and_warns_in_words_within_ten_of_it(
    floor: float | None, shown: str, warned: bool, acpc: Acpc,
    counterparty: Counterparty, tmp_path: Path,
) -> None:  # fmt: skip
    counterparty.script.extend(finished(pb.OUTCOME_PASSED, rounding_floor=floor))
    output = tmp_path / "score.json"
    answer = acpc(*SCORE, "-o", "wide", "--output", output)
    (row,) = [line for line in answer.stdout.splitlines() if "rounding floor " in line]
    assert row.split()[-2] == shown
    warning = (
        "warning: raw IR 0.5 of trained is within 10 rounding floors (0.06): rounding may move "
        "it by 0.0006; numeric mode fp64 gives its digits"
    )
    assert (warning in answer.stdout) == warned
    kept = json.loads(output.read_text())["answer"]["checkpoint"]
    assert kept.get("rounding_floor") == floor


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
    assert f"acpc operations watch {NAME}" in shown
    assert f"acpc operations cancel {NAME}" in shown
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


COMPARE = ("compare", "--checkpoint", "a", "--shift", "blur:15", "--input")


@pytest.mark.process
def test_a_full_stdout_is_one_line(target: str, pair: Path) -> None:
    """Of a long listing, a help, what prints while it talks to the server, and what is flushed."""
    with Path("/dev/full").open("w") as full:
        for asked in (["shifts"], ["score", "--help"], [*COMPARE, pair], ["--version"]):
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


def test_an_error_is_code_message_violations_and_request_id(
    acpc: Acpc, counterparty: Counterparty
) -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(field="dataset.task", description="no")
    counterparty.refusals["ScoreCheckpoint"].append(
        status(
            grpc.StatusCode.INVALID_ARGUMENT,
            "the request cannot work",
            error_details_pb2.BadRequest(field_violations=[violation]),
            error_details_pb2.ErrorInfo(reason="WEIGHTS_AMBIGUOUS"),
        )
    )
    answer = acpc(*SCORE, code=1)
    assert answer.stdout == ""
    assert answer.stderr.splitlines() == [
        "error: INVALID_ARGUMENT: the request cannot work",
        "  dataset.task: no",
        "  choose with --weights-file, for the reference with --reference-weights-file",
        "  request id: mine",
    ]


def test_checkpoints_commands(acpc: Acpc, counterparty: Counterparty) -> None:
    listed = acpc("checkpoints", "list")
    assert all(name in listed.stdout for name in ("one", "two", "three"))
    assert len(json.loads(acpc("checkpoints", "list", "--json").stdout)) == 3
    assert "available" in acpc("checkpoints", "show", "one").stdout
    loaded = acpc("checkpoints", "load", "one", "--pin", "--weights", "w.pt")
    assert "loaded, pinned" in loaded.stdout
    assert "d" * 64 in loaded.stdout
    assert counterparty.requests["LoadCheckpoint"][0].checkpoint.weights == "w.pt"
    assert json.loads(acpc("checkpoints", "unload", "one", "--json").stdout)["model"] is None


def test_operations_commands(acpc: Acpc, counterparty: Counterparty) -> None:
    listed = acpc("operations", "list", "--filter", "state=running")
    assert "operations/first" in listed.stdout
    assert "operations/second" in listed.stdout
    assert len(json.loads(acpc("operations", "list", "--json").stdout)) == 2
    assert "0/4 encoding anchors" in acpc("operations", "show", "7").stdout
    shown = checked(acpc("operations", "show", "7", "--json").stdout)
    assert (shown["kind"], shown["operation"]) == ("operation", "operations/7")
    counterparty.script.append(ended(pb.OUTCOME_PASSED, pb.OUTCOME_PASSED))
    shown = acpc("operations", "show", "mine").stdout
    assert "PASSED: what decided" in shown and "how sure: passes; 95 % sure" in shown
    acpc("operations", "cancel", "7")
    acpc("operations", "delete", "operations/7")
    assert counterparty.requests["CancelOperation"][0].name == "operations/7"
    assert counterparty.requests["DeleteOperation"][0].name == "operations/7"
