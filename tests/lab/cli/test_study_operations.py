"""``acpc operations`` on studies: the same commands, another answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from acpc.v1 import study_service_pb2 as pb
from acpc_client import StudyResult, load_result
from client_counterparty import Counterparty
from client_messages import study_operation, study_response
from result_schema import checked

NAME = "operations/study"
REQUEST = pb.RunStudyRequest(checkpoint={"name": "trained"}, sensitivity={"probes": 1})
RESPONSE = study_response(REQUEST, {"anchor": np.array([7, 9]), "squared_norm": np.ones(2)})
DONE = study_operation(NAME, REQUEST, response=RESPONSE)
LINE = "sensitivity study of trained: 2 rows of anchor, squared_norm"


def test_a_study_is_followed_shown_and_downloaded(
    acpc: Callable[..., Any], counterparty: Counterparty, tmp_path: Path
) -> None:
    watched, shown, kept = tmp_path / "watched.npz", tmp_path / "shown.json", tmp_path / "kept.npz"
    counterparty.script.extend([study_operation(NAME, REQUEST), DONE])
    answer = acpc("operations", "watch", NAME, "--output", watched)
    assert (answer.exit_code, answer.stdout.strip()) == (0, LINE)
    counterparty.script.append(DONE)
    answer = acpc("operations", "watch", NAME, "--json")
    assert checked(answer.stdout)["answer"]["columns"]["anchor"] == [7, 9]
    counterparty.script.append(DONE)
    assert LINE in acpc("operations", "show", NAME).stdout
    counterparty.script.append(DONE)
    assert acpc("operations", "download", NAME, "--output", kept).exit_code == 0
    wanted = StudyResult.from_message(RESPONSE)
    counterparty.script.append(DONE)
    assert acpc("operations", "download", NAME, "--output", shown).exit_code == 0
    assert [load_result(path).answer for path in (watched, kept, shown)] == [wanted] * 3
