"""``acpc operations download`` and ``--output``: the score as a file of each format."""

# ruff: noqa: ANN401 - a command answers whatever the runner recorded

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import Score, load_result
from client_counterparty import Counterparty
from client_messages import operation, score_response, status

NAME = "operations/mine"
SCORED = Score.from_message(score_response(pb.OUTCOME_FAILED))
SCORE = [
    "score", "trained", "--dataset", "tworoom.h5", "--task", "tworoom", "--shift", "blur:15",
    "--request-id", "mine",
]  # fmt: skip


def ended() -> Any:
    return operation(NAME, 4, response=score_response(pb.OUTCOME_FAILED))


@pytest.mark.parametrize("suffix", ["json", "npz", "parquet"])
@pytest.mark.parametrize(
    ("command", "code"),
    [(["operations", "download", "mine"], 0), (["operations", "watch", "mine"], 3), (SCORE, 3)],
    ids=["download", "watch", "score"],
)
def test_the_suffix_names_the_format(
    command: list[str], code: int, suffix: str, acpc: Callable[..., Any],
    counterparty: Counterparty, tmp_path: Path,
) -> None:  # fmt: skip
    counterparty.script.append(ended())
    path = tmp_path / f"score.{suffix}"
    answer = acpc(*command, "--output", path)
    assert answer.exit_code == code, answer.output
    read = load_result(path)
    assert (read.answer, read.operation) == (SCORED, NAME)


@pytest.mark.parametrize(
    ("name", "words"),
    [("score.csv", "wanted a name ending in one of .json"), ("nowhere/score.npz", "not exist")],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_asked(
    name: str, words: str, acpc: Callable[..., Any], counterparty: Counterparty, tmp_path: Path
) -> None:
    for command in (SCORE, ["operations", "download", "mine"]):
        answer = acpc(*command, "--output", tmp_path / name)
        assert answer.exit_code == 2
        assert words in " ".join(answer.stderr.replace("│", " ").split())
    assert not counterparty.requests


def test_a_job_without_a_score_has_nothing_to_download(
    acpc: Callable[..., Any], counterparty: Counterparty, tmp_path: Path
) -> None:
    path = tmp_path / "score.npz"
    counterparty.script.append(operation(NAME, 1))
    counterparty.script.append(operation(NAME, error=status(grpc.StatusCode.INTERNAL, "it broke")))
    for words in ("has not ended", "it broke"):
        answer = acpc("operations", "download", "mine", "--output", path)
        assert answer.exit_code == 1
        assert words in answer.stderr
    assert not path.exists()
