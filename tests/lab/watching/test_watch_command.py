"""``acpc watch``: what is printed where; the exit codes are in ``lab/cli/test_gate_files.py``."""

import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import yaml
from acpc_command import Acpc, acpc_command
from job_counterparty import FAILED, JobParty
from result_documents import checked


@pytest.fixture
def acpc(target: str, party: JobParty, file: Path) -> Acpc:
    """Watches once two checkpoints, of epoch 1 and 2."""
    for epoch in (1, 2):
        party.write("run", f"weights_epoch_{epoch}.pt")
    once = ("--sweep", file, "--once", "--interval", "0.1")
    return acpc_command("watch", *once, ACPC_TARGET=target, server=party)


def change(file: Path, **keys: Any) -> None:
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **keys}))


def test_the_reference_is_not_judged(acpc: Acpc, file: Path) -> None:
    change(file, reference={"name": "run", "weights": "weights_epoch_1.pt"})
    acpc.server.fates["run"] = deque([FAILED])
    first, second = acpc().stdout.splitlines()
    assert "epoch 1: reference: gaussian_noise:0.08" in first
    assert "passed" not in first.lower() and "failed" not in first.lower()
    assert "epoch 2: passed" in second


def test_once_says_what_is_torn(acpc: Acpc) -> None:
    acpc.server.write("run", "weights_epoch_3.pt", problem="weights_epoch_3.pt: no end")
    answer = acpc()
    assert "run (weights_epoch_3.pt) waits until it is whole" in answer.stderr
    assert "epoch 3" not in answer.stdout


def test_a_line_and_a_case_for_each_checkpoint(acpc: Acpc, tmp_path: Path) -> None:
    acpc.server.fates["run"] = deque([FAILED])
    lines = acpc("--junit", tmp_path / "gate.xml", code=3).stdout.splitlines()
    written = (tmp_path / "gate.xml").read_text()
    for line, epoch, verdict in zip(lines, (1, 2), ("failed", "passed"), strict=True):
        name = f"run weights_epoch_{epoch}.pt"
        assert line.startswith(f"{name} epoch {epoch}: {verdict}: gaussian_noise:0.")
        assert f'name="{name}"' in written
    assert acpc(code=5).stdout == "", "nothing is new, so nothing was judged"


@pytest.mark.parametrize("named", [["nobody"], ["**"]], ids=["no name fits", "nothing is there"])
def test_a_gate_that_judged_nothing_is_no_pass(
    named: list[str], acpc: Acpc, file: Path, tmp_path: Path
) -> None:
    change(file, checkpoints=named)
    if named == ["**"]:
        acpc.server.remove("run")
        acpc.server.others["run"] = ("no config.json beside it", "acpc-server import")
    answer = acpc("--junit", tmp_path / "gate.xml", code=5)
    assert "undecided: nothing was judged" in answer.stderr
    assert "run" in answer.stderr and "left out" in answer.stderr, "what is left out is named"
    assert (tmp_path / "gate.xml").read_text().count('tests="1"') == 2
    assert "<skipped" in (tmp_path / "gate.xml").read_text()


def test_json_is_a_document_a_line(acpc: Acpc) -> None:
    documents = [json.loads(line) for line in acpc("-o", "json").stdout.splitlines()]
    assert [item["epoch"] for item in documents] == [1, 2]
    assert documents[0]["verdict"] == "passed"
    checked(documents[0]["scores"][0])


def test_a_prefix_is_what_the_server_calls_the_folder(acpc: Acpc, tmp_path: Path) -> None:
    assert "a path of this machine; give what the server calls" in acpc(tmp_path, code=2).stderr
    nothing = acpc("runs", code=5).stderr
    assert "the server has no checkpoint runs, or below it; it has run" in nothing
    assert not acpc.server.jobs
    assert len(acpc("run/").stdout.splitlines()) == 2
