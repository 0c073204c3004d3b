"""``--out``: scores and studies as files of each format."""

from pathlib import Path

import numpy as np
import pytest
from acpc.v1 import scoring_service_pb2 as pb
from acpc.v1 import study_service_pb2
from acpc_client import Score, StudyResult, load_result
from acpc_command import Acpc
from client_messages import operation, score_response, study_operation, study_response
from result_documents import checked
from score_scripts import NAME, SCORE

SCORED = score_response(pb.OUTCOME_FAILED)


@pytest.mark.parametrize("suffix", ["json", "npz"])
@pytest.mark.parametrize(
    ("command", "code"),
    [(["show", "job", "mine"], 0), (["show", "job", "mine", "--wait"], 3), (SCORE, 3)],
    ids=["download", "watch", "score"],
)
def test_the_suffix_names_the_format(
    command: list[str], code: int, suffix: str, acpc: Acpc
) -> None:
    acpc.server.script.append(operation(NAME, 4, response=SCORED))
    path = Path(f"score.{suffix}")
    acpc(*command, "--out", path, code=code)
    read = load_result(path)
    assert (read.answer, read.operation) == (Score.from_message(SCORED), NAME)


def test_a_study_is_followed_shown_and_downloaded(acpc: Acpc) -> None:
    """By the same commands, with another answer."""
    name, asked = "operations/study", study_service_pb2.RunStudyRequest(sensitivity={"probes": 1})
    asked.checkpoint.name = "trained"
    response = study_response(asked, {"anchor": np.array([7, 9]), "squared_norm": np.ones(2)})
    done = study_operation(name, asked, response=response)
    line = "sensitivity study of trained: 2 rows of anchor, squared_norm"
    watched, shown, kept = Path("watched.npz"), Path("shown.json"), Path("kept.npz")
    acpc.server.script.extend([study_operation(name, asked), *[done] * 5])
    assert acpc("show", "job", name, "--wait", "--out", watched).stdout.strip() == line
    answer = acpc("show", "job", name, "--wait", "-o", "json")
    assert checked(answer.stdout)["answer"]["columns"]["anchor"] == [7, 9]
    assert line in acpc("show", "job", name).stdout
    for file in (kept, shown):
        acpc("show", "job", name, "--out", file)
    wanted = StudyResult.from_message(response)
    assert [load_result(path).answer for path in (watched, kept, shown)] == [wanted] * 3
