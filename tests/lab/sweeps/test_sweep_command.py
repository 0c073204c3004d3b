"""``acpc sweep``: exit codes, what is printed where, and the table that moves."""

import csv
import io
import json
from collections import deque
from pathlib import Path

import pytest
import yaml
from acpc_command import Acpc, acpc_command
from job_counterparty import DOCUMENT, FAILED, JobParty


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT))
    return path


@pytest.fixture
def acpc(target: str, party: JobParty) -> Acpc:
    return acpc_command(ACPC_TARGET=target, COLUMNS="160", server=party)


def test_a_checkpoint_that_is_its_own_reference_does_not_gate(acpc: Acpc, file: Path) -> None:
    file.write_text(yaml.safe_dump({**DOCUMENT, "reference": "a"}))
    acpc.server.fates["a"] = deque([FAILED, FAILED])
    assert "nothing was judged" in acpc("sweep", "run", file, code=5).stderr
    acpc("sweep", "run", file, "--no-gate")


def test_the_lid_can_be_closed(acpc: Acpc, file: Path) -> None:
    acpc.server.looks = 2
    acpc("sweep", "run", file, "--watch", code=1)
    left = acpc("sweep", "run", file, "--submit-only")
    assert (left.exit_code, left.stdout) == (0, "2 of 2 submitted\n")
    assert "2 running" in acpc("sweep", "show", file, "--offline").stdout
    seen = acpc("sweep", "show", file)
    assert seen.stdout.splitlines()[-1] == "mine: 2 cells: 2 running"
    assert acpc("cancel", file).stdout == "2 cancellations requested\n"
    acpc("sweep", "run", file, "--watch", code=4)
    assert "2 cancelled" in acpc("sweep", "show", file, "--offline").stdout
    assert acpc("cancel", file).stdout == "0 cancellations requested\n"
    acpc("sweep", "run", file, "--submit-only")
    acpc("sweep", "run", file, "--watch")
    status = acpc("sweep", "show", file, "-o", "json").stdout
    answers = [cell["answer"] for cell in json.loads(status)["answer"]["cells"]]
    assert [(one["state"], one["attempt"]) for one in answers] == [("succeeded", 2)] * 2


def test_results_are_exported_without_a_server(acpc: Acpc, file: Path, tmp_path: Path) -> None:
    acpc("sweep", "run", file)
    printed = acpc("sweep", "show", tmp_path / "mine.sweep", "-o", "csv")
    assert [row["sr"] for row in csv.DictReader(io.StringIO(printed.stdout))] == ["0.97"] * 2
    whole = json.loads(acpc("sweep", "show", file, "-o", "json").stdout)
    assert (whole["kind"], len(whole["answer"]["cells"])) == ("sweep", 2)
    saved = acpc("sweep", "show", file, "--anchors", "--out", tmp_path / "anchors.csv")
    assert saved.stderr.endswith("anchors.csv: 4 rows\n")
    assert saved.stdout.endswith("mine: 2 cells: 2 succeeded\n"), "the table is printed too"
    acpc("sweep", "show", file, "--out", tmp_path / "x.txt", code=2)


def test_check_lists_the_cells_and_submits_nothing(acpc: Acpc, file: Path, tmp_path: Path) -> None:
    answer = acpc("sweep", "show", file)
    assert answer.stdout.splitlines() == [
        "cell                          reference",
        "a gaussian_noise:0.02 seed 0  none",
        "a gaussian_noise:0.08 seed 0  none",
    ]
    assert len(json.loads(acpc("sweep", "show", file, "--plan", "-o", "json").stdout)) == 2
    (tmp_path / "empty").write_text("")
    denied = acpc("sweep", "show", file, code=2, ACPC_TOKEN_FILE=str(tmp_path / "empty"))
    assert "token" in denied.stderr
    assert not acpc.server.jobs
    assert not (tmp_path / "mine.sweep").exists()


def test_a_wrong_file_is_wrong_usage(acpc: Acpc, file: Path) -> None:
    file.write_text(yaml.safe_dump({**DOCUMENT, "checkpoints": ["none-*"]}))
    missing = acpc("sweep", "run", file, code=2)
    assert "line 5: checkpoints[0]: 'none-*' fits no checkpoint" in missing.stderr
    assert missing.stderr.count("fits no checkpoint") == 1


def test_init_writes_a_file_and_keeps_one_that_is_there(acpc: Acpc, tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    acpc("init", path)
    assert yaml.safe_load(path.read_text())["name"] == "new"
    path.write_text("mine")
    acpc("init", path, code=2)
    assert path.read_text() == "mine"
    acpc("init", tmp_path / "nowhere" / "x.yaml", code=2)
