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
from written_weights import Writer, saved


@pytest.fixture
def acpc(target: str, party: JobParty, file: Path, write: Writer) -> Acpc:
    """Watches once a folder with two checkpoints, of epoch 1 and 2."""
    for epoch in (1, 2):
        write("run", f"weights_epoch_{epoch}.pt")
    return acpc_command(
        "watch", write.root, "--sweep", file, "--once", ACPC_TARGET=target, server=party
    )


def change(file: Path, **keys: Any) -> None:
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **keys}))


def test_the_reference_is_not_judged(acpc: Acpc, file: Path) -> None:
    change(file, reference={"name": "run", "weights": "weights_epoch_1.pt"})
    acpc.server.listing["run"] = ["weights_epoch_1.pt", "weights_epoch_2.pt"]
    acpc.server.fates["run"] = deque([FAILED])
    first, second = acpc().stdout.splitlines()
    assert "epoch 1: reference: gaussian_noise:0.08" in first
    assert "passed" not in first.lower() and "failed" not in first.lower()
    assert "epoch 2: passed" in second


@pytest.mark.parametrize("torn", ["config.json", "weights_epoch_3.pt"])
def test_once_says_what_is_torn(write: Writer, acpc: Acpc, torn: str) -> None:
    (write.root / "run/weights_epoch_3.pt").write_bytes(saved("a"))
    (write.root / "run" / torn).write_bytes(b"")
    answer = acpc(code=None)
    told = f"{write.root}/run/weights_epoch_3.pt, or config.json beside it, is not whole"
    assert told in answer.stderr and "epoch 3" not in answer.stdout


def test_a_line_and_a_case_for_each_checkpoint(acpc: Acpc, tmp_path: Path) -> None:
    acpc.server.fates["run"] = deque([FAILED])
    lines = acpc("--junit", tmp_path / "gate.xml", code=3).stdout.splitlines()
    written = (tmp_path / "gate.xml").read_text()
    for line, epoch, verdict in zip(lines, (1, 2), ("failed", "passed"), strict=True):
        name = f"run weights_epoch_{epoch}.pt"
        assert line.startswith(f"{name} epoch {epoch}: {verdict}: gaussian_noise:0.")
        assert f'name="{name}"' in written
    assert acpc(code=5).stdout == "", "nothing is new, so nothing was judged"


def test_a_checkpoint_of_lightning_is_scored(write: Writer, acpc: Acpc) -> None:
    for file in (write.root / "run").glob("*.pt"):
        file.rename(file.with_name(f"epoch=0-step={file.stem[-1]}.ckpt"))
    assert "run epoch=0-step=1.ckpt epoch 1: passed" in acpc().stdout
    assert len(acpc.server.jobs) == 2


@pytest.mark.parametrize("named", [["nobody"], ["**"]], ids=["no name fits", "nothing is there"])
def test_a_gate_that_judged_nothing_is_no_pass(
    write: Writer, named: list[str], acpc: Acpc, file: Path, tmp_path: Path
) -> None:
    change(file, checkpoints=named)
    if named == ["**"]:
        (write.root / "run/config.json").unlink()
    answer = acpc("--junit", tmp_path / "gate.xml", code=5)
    assert "undecided: nothing was judged" in answer.stderr
    assert str(write.root / "run/weights_epoch_1.pt") in answer.stderr, "what is left out is named"
    assert (tmp_path / "gate.xml").read_text().count('tests="1"') == 2
    assert "<skipped" in (tmp_path / "gate.xml").read_text()


def test_json_is_a_document_a_line(acpc: Acpc) -> None:
    documents = [json.loads(line) for line in acpc("-o", "json").stdout.splitlines()]
    assert [item["epoch"] for item in documents] == [1, 2]
    assert documents[0]["verdict"] == "passed"
    checked(documents[0]["scores"][0])


def test_a_checkpoint_without_a_name_at_the_server_wants_a_prefix(
    write: Writer, acpc: Acpc
) -> None:
    for file in (write.root / "run").iterdir():
        file.rename(write.root / file.name)
    assert "prefix: " in acpc(code=2).stderr
    acpc("--prefix", "runs/7")
    assert {job.request.checkpoint.name for job in acpc.server.jobs.values()} == {"runs/7"}
