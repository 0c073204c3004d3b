"""Thresholds as a file: `--thresholds` of a study, and of a protocol."""

import hashlib
import json
from pathlib import Path

from acpc_command import Acpc
from result_documents import checked

KEPT = Path(__file__).parents[1] / "thresholds.json"
SWEEP = """family,task,run,level,ir_rel,sr,success_noisy,success_clean
lewm,a,0,0,1,1,0,90
lewm,a,0,1,0.5,1,10,90
lewm,a,0,2,0.09,0.92,90,90
lewm,b,0,0,1,1,0,90
lewm,b,0,1,0.3,1,90,90
lewm,b,0,2,0.18,1,90,90
"""
SCORE = ["score", "a", "--dataset", "d.h5", "--task", "mine", "--shift", "blur:15", "--no-wait"]
EDGE = "t_IR 0.3 lies at the edge of its grid: a larger one was not tried and may do better"


def test_a_study_writes_them_and_a_score_takes_them(acpc: Acpc, tmp_path: Path) -> None:
    rows, file = tmp_path / "sweep.csv", tmp_path / "thresholds.json"
    rows.write_text(SWEEP)
    answer = acpc("study", "run", "thresholds", "--rows", rows, "--thresholds", file)
    assert f"wrote {file}: relative IR at most 0.3, SR at least 0.9" in answer.stderr
    assert f"warning: {EDGE}" in answer.stderr
    (source,) = checked(file.read_text())["request"]["sources"]
    assert source["sha256"] == hashlib.sha256(rows.read_bytes()).hexdigest()

    answer = acpc(*SCORE, "--protocol", f"{{thresholds: {file}}}")
    assert f"warning: {file}: {EDGE}" in answer.stderr
    (sent,) = acpc.server.requests["ScoreCheckpoint"]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    used = sent.thresholds
    assert (used.sr, used.family, used.source_digest) == (0.9, "lewm", digest)
    assert not used.HasField("ir"), "0.3 is the contract's default, which is not sent"


def test_a_changed_file_is_a_usage_error_that_names_the_field(acpc: Acpc, tmp_path: Path) -> None:
    file, document = tmp_path / "changed.json", json.loads(KEPT.read_text())
    document["answer"]["ir"] = 0.9
    file.write_text(json.dumps(document))
    answer = acpc(*SCORE, "--protocol", f"{{thresholds: {file}}}", code=2)
    assert "answer.ir: found 0.9, but request.parameters.ir_grid is" in answer.stderr
    assert not acpc.server.requests
