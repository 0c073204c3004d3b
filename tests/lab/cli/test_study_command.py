"""``acpc study`` on rows: tables, bundles, thresholds, verification and its exit codes."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from acpc_command import Acpc, acpc_command
from result_documents import checked

SWEEP = """task,run,level,ir_rel,sr,success_noisy,success_clean
a,0,0,1,1,0,90
a,0,1,0.5,1,10,90
a,0,2,0.09,1,90,90
b,0,0,1,1,0,90
b,0,1,0.18,1,90,90
b,0,2,0.18,1,90,90
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of the paper's pairs."""
    bundle = tmp_path_factory.mktemp("bundle") / "shifts"
    answer = acpc_command("study")("run", "shifts", "--rows", "paper", "--out", bundle)
    for line in ("24  0.889      0.882   1.000", "12  0.875", "12  0.900"):
        assert line in answer.stdout
    table, ours, theirs = answer.stdout.partition("in the paper: ")
    assert table.count("boundary") == 3  # two pairs and the column
    assert ours and "BA 0.889, precision 0.882, recall 1.000" in theirs
    assert f"acpc verify {bundle}" in answer.stderr
    return bundle


@pytest.mark.process
def test_a_changed_study_is_no_longer_verified(acpc: Acpc, written: Path) -> None:
    bundle = Path(shutil.copytree(written, Path("shifts")))
    assert acpc("verify", bundle).stdout.startswith("OK:")
    summary = (bundle / "summary.json").read_text()
    (bundle / "summary.json").write_text(summary.replace("0.8888", "0.9888"))
    answer = acpc("verify", bundle, "-o", "json", code=1)
    assert "first difference: summary.json has the SHA-256" in answer.stderr
    assert json.loads(answer.stdout)["difference"].startswith("summary.json")


@pytest.mark.process
def test_a_bundle_takes_the_thresholds_of_another(acpc: Acpc, written: Path) -> None:
    pairs = Path("pairs.csv")
    sweep, chosen, out = Path("sweep.csv"), Path("thresholds"), Path("out")
    sweep.write_text(SWEEP)
    answer = acpc("study", "run", "thresholds", "--rows", sweep, "--out", chosen)
    assert "b            0.0%   90.0  90.0%   1 " in answer.stdout
    assert " 1-2\n" in answer.stdout
    header, _, rest = (written / "inputs" / "paper.csv").read_text().partition("\n")
    pairs.write_text(f"{header}\n" + rest.replace("TwoRoom", "a").splitlines()[0] + "\n")
    asked = ("--rows", pairs, "--thresholds-from", chosen, "--out", out, "-o", "json")
    answer = acpc("study", "run", "shifts", *asked)
    assert "a,3072,blur,0.499,0.885,55.7,0.2,0.95" in (out / "rows.csv").read_text()
    (pair,) = checked(answer.stdout)["answer"]["pairs"]
    assert checked((out / "summary.json").read_text())["request"]["study"] == "shifts"
    assert pair["reference_score"] == pytest.approx((0.2 - 1) / 0.2)
    manifest = json.loads((out / "study.json").read_text())
    assert [source["kind"] for source in manifest["sources"]] == ["file", "study", "computed"]
    acpc("verify", out)


def test_a_study_of_checkpoints_takes_rows_without_a_server(acpc: Acpc) -> None:
    answer = acpc("study", "run", "collapse", "--rows", "paper", "--target", "nowhere:1")
    assert "raw IR alone prefers 0, which has collapsed" in answer.stdout


KEPT = Path(__file__).parents[1] / "thresholds.json"
FAMILY = """family,task,run,level,ir_rel,sr,success_noisy,success_clean
lewm,a,0,0,1,1,0,90
lewm,a,0,1,0.5,1,10,90
lewm,a,0,2,0.09,0.92,90,90
lewm,b,0,0,1,1,0,90
lewm,b,0,1,0.3,1,90,90
lewm,b,0,2,0.18,1,90,90
"""
SCORE = ["score", "a", "--dataset", "d.h5", "--task", "mine", "--shift", "blur:15", "--no-wait"]
EDGE = "t_IR 0.3 lies at the edge of its grid: a larger one was not tried and may do better"


def test_a_study_writes_them_and_a_score_takes_them(acpc: Acpc) -> None:
    rows, file = Path("sweep.csv"), Path("thresholds.json")
    rows.write_text(FAMILY)
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


def test_a_changed_file_is_a_usage_error_that_names_the_field(acpc: Acpc) -> None:
    file, document = Path("changed.json"), json.loads(KEPT.read_text())
    document["answer"]["ir"] = 0.9
    file.write_text(json.dumps(document))
    answer = acpc(*SCORE, "--protocol", f"{{thresholds: {file}}}", code=2)
    assert "answer.ir: found 0.9, but request.parameters.ir_grid is" in answer.stderr
    assert not acpc.server.requests
