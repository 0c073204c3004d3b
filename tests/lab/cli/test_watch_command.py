"""``acpc watch``: exit codes, and what is printed where."""

import json
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import processes
import pytest
import yaml
from acpc_command import Acpc, acpc_command
from client_counterparty import served
from client_messages import status
from grpc import StatusCode
from job_counterparty import DOCUMENT, FAILED, JobParty
from result_documents import checked
from waiting import GENEROUS_SECONDS, wait_until
from written_weights import saved

ACPC = str(Path(sys.executable).with_name("acpc"))
UNFIT = status(StatusCode.FAILED_PRECONDITION, "it does not fit")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with two checkpoints, of epoch 1 and 2."""
    folder = tmp_path / "root/run"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    for epoch in (1, 2):
        (folder / f"weights_epoch_{epoch}.pt").write_bytes(saved("a"))
    return folder.parent


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gate.yaml"
    document = {**DOCUMENT, "name": "gate", "checkpoints": ["**"]}
    path.write_text(yaml.safe_dump({**document, "shifts": [{"gaussian_noise": [0.08]}]}))
    return path


@pytest.fixture
def party() -> JobParty:
    return JobParty(listing={})


@pytest.fixture
def acpc(party: JobParty, root: Path, file: Path) -> Iterator[Acpc]:
    with served(party) as target:
        yield acpc_command("watch", root, "--sweep", file, "--once", ACPC_TARGET=target)


def test_the_reference_is_not_judged(acpc: Acpc, party: JobParty, file: Path) -> None:
    reference = {"name": "run", "weights": "weights_epoch_1.pt"}
    document = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**document, "reference": reference}))
    party.listing["run"] = ["weights_epoch_1.pt", "weights_epoch_2.pt"]
    party.fates["run"] = deque([FAILED])
    answer = acpc()
    first, second = answer.stdout.splitlines()
    assert "epoch 1: reference: gaussian_noise:0.08" in first
    assert "passed" not in first.lower() and "failed" not in first.lower()
    assert "epoch 2: passed" in second


@pytest.mark.parametrize("torn", ["config.json", "weights_epoch_3.pt"])
def test_once_says_what_is_torn(acpc: Acpc, root: Path, torn: str) -> None:
    (root / "run/weights_epoch_3.pt").write_bytes(saved("a"))
    (root / "run" / torn).write_bytes(b"")
    answer = acpc(code=None)
    told = f"{root}/run/weights_epoch_3.pt, or config.json beside it, is not whole"
    assert told in answer.stderr and "epoch 3" not in answer.stdout


@pytest.mark.parametrize(
    ("fates", "options", "code"),
    [
        ([], [], 0),
        ([FAILED], [], 3),
        ([UNFIT], [], 4),
        ([UNFIT, FAILED], [], 4),
        ([], ["--gate", "confident"], 1),
    ],
    ids=["passed", "failed", "no score", "both", "no evidence"],
)
def test_the_exit_code_is_the_worst_checkpoint(
    fates: list[Any], options: list[str], code: int, acpc: Acpc, party: JobParty
) -> None:
    party.fates["run"] = deque(fates)
    acpc(*options, code=code)


def test_a_line_and_a_case_for_each_checkpoint(acpc: Acpc, party: JobParty, tmp_path: Path) -> None:
    party.fates["run"] = deque([FAILED])
    lines = acpc("--junit", tmp_path / "gate.xml", code=3).stdout.splitlines()
    assert lines[0].startswith("run weights_epoch_1.pt epoch 1: failed: gaussian_noise:0.")
    assert lines[1].startswith("run weights_epoch_2.pt epoch 2: passed: gaussian_noise:0.")
    cases = ET.parse(tmp_path / "gate.xml").findall("testsuite/testcase")  # noqa: S314 - its own
    assert [(case.attrib["name"], case[0].tag) for case in cases] == [
        ("run weights_epoch_1.pt", "failure"),
        ("run weights_epoch_2.pt", "system-out"),
    ]
    assert acpc(code=5).stdout == "", "nothing is new, so nothing was judged"


def test_a_checkpoint_of_lightning_is_scored(acpc: Acpc, root: Path, party: JobParty) -> None:
    for file in (root / "run").glob("*.pt"):
        file.rename(file.with_name(f"epoch=0-step={file.stem[-1]}.ckpt"))
    assert "run epoch=0-step=1.ckpt epoch 1: passed" in acpc().stdout
    assert len(party.jobs) == 2


@pytest.mark.parametrize("named", [["nobody"], ["**"]], ids=["no name fits", "nothing is there"])
def test_a_gate_that_judged_nothing_is_no_pass(
    named: list[str], acpc: Acpc, root: Path, file: Path, tmp_path: Path
) -> None:
    document = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**document, "checkpoints": named}))
    if named == ["**"]:
        (root / "run/config.json").unlink()
    answer = acpc("--junit", tmp_path / "gate.xml", code=5)
    assert "undecided: nothing was judged" in answer.stderr
    assert str(root / "run/weights_epoch_1.pt") in answer.stderr, "what is left out is named"
    cases = ET.parse(tmp_path / "gate.xml").findall("testsuite/testcase")  # noqa: S314 - its own
    assert [case[0].tag for case in cases] == ["skipped"]


def test_json_is_a_document_a_line(acpc: Acpc) -> None:
    documents = [json.loads(line) for line in acpc("-o", "json").stdout.splitlines()]
    assert [item["epoch"] for item in documents] == [1, 2]
    assert documents[0]["verdict"] == "passed"
    checked(documents[0]["scores"][0])


def test_a_checkpoint_without_a_name_at_the_server_wants_a_prefix(
    acpc: Acpc, root: Path, party: JobParty
) -> None:
    for file in (root / "run").iterdir():
        file.rename(root / file.name)
    answer = acpc(code=2)
    assert "prefix: " in answer.stderr
    acpc("--prefix", "runs/7")
    assert {job.request.checkpoint.name for job in party.jobs.values()} == {"runs/7"}


@pytest.mark.process
def test_an_interrupt_leaves_cleanly_and_the_same_command_goes_on(
    root: Path, file: Path, party: JobParty
) -> None:
    party.looks = 10**9
    with served(party) as target:
        command = [ACPC, "watch", str(root), "--sweep", str(file), "--target", target]
        with processes.running(command, stderr=subprocess.PIPE, text=True) as process:
            wait_until(lambda: len(party.jobs) == 2)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=GENEROUS_SECONDS)
        assert process.returncode == 130
        assert "interrupted: jobs go on at the server" in told
        assert "Traceback" not in told
        party.looks = 0
        for job in party.jobs.values():
            job.looks = 0
        last = processes.run([*command, "--once"])
        assert len(last.stdout.splitlines()) == 2
        assert len(party.jobs) == 2
