"""A misfit on a server: ``acpc check-fit``, the gates, the receipt, and the gauge."""

import json
from pathlib import Path

import h5py
import pytest
from acpc_client import load_result
from acpc_command import Acpc, acpc_command
from fit_world import FAULTS, TASK
from served_fixtures import Demo

AUGMENTED, BASE = "two-room-augmented", "two-room-base"


RIGHT = "two-room.h5"


@pytest.fixture(scope="module")
def acpc(demo: Demo) -> Acpc:
    with (
        h5py.File(demo.datasets / RIGHT) as file,
        h5py.File(demo.datasets / "flipped.h5", "w") as other,
    ):
        held = {name: file[name][:] for name in file}
        FAULTS["frames upside down"].change(held, 0)
        for name, values in held.items():
            other[name] = values
    (demo.datasets / "raw.yaml").write_text(
        TASK.replace("action: action", "action: {normaliser: none}\nepisodes: 0-19")
    )
    return acpc_command(ACPC_TARGET=demo.server.address)


def test_a_misfit_is_named_and_passes_no_gate(acpc: Acpc, tmp_path: Path) -> None:
    task = ("--task", "two-room.yaml")
    fits = acpc("check-fit", AUGMENTED, "--dataset", RIGHT, *task)
    assert "predicts these data: its error is 0." in fits.output
    asked = ("--dataset", "flipped.h5", *task)
    wrong = acpc("check-fit", AUGMENTED, *asked, "-o", "json", code=3)
    found = json.loads(wrong.stdout)
    assert found["outcome"] == "does_not_fit"
    assert found["causes"][0]["name"] == "upside_down" and found["causes"][0]["sure"]
    for gate in ("point", "confident"):
        scored = acpc(
            "score", AUGMENTED, *asked, "--shift", "gaussian_noise:0.01", "--anchors", 64,
            "--reference", BASE, "--protocol", "{thresholds: {ir: 5, sr: 0.01}}", "--gate", gate,
            "--out", tmp_path / "score.json", code=3,
        )  # fmt: skip
        assert "DOES_NOT_FIT: IR and SR mean nothing" in scored.output
        assert "frames upside down would: error 0." in scored.output
    score = load_result(tmp_path / "score.json").answer
    assert score.metrics()["skill"] == score.checkpoint.fit.skill > 0.5
    assert score.metrics()["passed"] == 0
    assert "does not fit" in score.certainty and score.evidence.p_passed == 1
    assert score.receipt.parameters["fit"]["action_anchors"] == 64
    assert score.receipt.parameters["action"] == {"column": "action", "normaliser": "zscore"}


def test_another_normaliser_and_episodes_are_in_the_receipt(acpc: Acpc, tmp_path: Path) -> None:
    asked = ("score", AUGMENTED, "--dataset", RIGHT, "--task", "raw.yaml")
    shift = ("--shift", "gaussian_noise:0.01", "--anchors", 40)
    receipts = []
    for more in ((), ("--episodes", "5-9")):
        acpc(*asked, *shift, *more, "--out", tmp_path / "score.json", code=3)
        score = load_result(tmp_path / "score.json").answer
        assert score.checkpoint.fit.causes[0].name == "zscore_actions"
        receipts.append(score.receipt.parameters)
        drawn = set(score.checkpoint.anchor_values.trajectory_ids.tolist())
        assert drawn <= set(range(5, 10) if more else range(20))
    assert [receipt["episodes"] for receipt in receipts] == ["0-19", "5-9"]
    assert receipts[0]["action"]["normaliser"] == "none"
    refused = acpc(*asked, *shift, "--episodes", "99", code=1)
    assert "dataset.episodes" in refused.output and "episodes 0 to 29" in refused.output
