"""``--log-to`` of score, sweep and watch: what is written where, and that nothing hangs on it."""

# ruff: noqa: F401, F811 - fixtures are shared by importing them

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from acpc_command import Acpc
from job_counterparty import DOCUMENT, FAILED, JobParty, party, target

pytestmark = pytest.mark.process  # it loads TensorBoard

SCORE = ("score", "a", "--dataset", "rooms.h5", "--task", "tworoom", "--shift", "blur:15")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT))
    return path


def _scalars(folder: Path) -> dict[str, list[int]]:
    """Steps of every scalar that TensorBoard reads in a folder."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    tags = events.Tags()["scalars"]
    return {tag: [item.step for item in events.Scalars(tag)] for tag in tags}


def test_a_score_goes_to_a_tracker_and_the_verdict_decides_the_exit_code(
    acpc: Acpc, party: JobParty, tmp_path: Path
) -> None:
    party.fates["a"] = deque([FAILED])
    acpc(*SCORE, "--weights-file", "epoch_4.pt", "--log-to", f"tensorboard:{tmp_path}/r", code=3)
    assert _scalars(tmp_path / "r/a")["acpc/gaussian_blur_15/sr"] == [4]


def test_a_sweep_hands_on_each_cell(
    acpc: Acpc, file: Path, tmp_path: Path, party: JobParty
) -> None:
    acpc("sweep", "run", file, "--log-to", f"tensorboard:{tmp_path}/runs")
    found = _scalars(tmp_path / "runs/mine/a")
    for shift in ("gaussian_noise_0.02", "gaussian_noise_0.08"):
        assert found[f"acpc/{shift}/sr"] == [0]


def test_a_watch_writes_the_epochs_of_a_run_into_one(
    acpc: Acpc, file: Path, tmp_path: Path
) -> None:
    document = {**DOCUMENT, "checkpoints": ["**"], "shifts": [{"gaussian_noise": 0.08}]}
    file.write_text(yaml.safe_dump(document))
    for epoch in (3, 4):
        folder = tmp_path / f"root/run/epoch-{epoch}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "weights.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    options = ("--sweep", file, "--once", "--log-to", f"tensorboard:{tmp_path}/runs")
    acpc("watch", tmp_path / "root", *options)
    found = _scalars(tmp_path / "runs/mine/run")
    assert found["acpc/gaussian_noise_0.08/sr"] == [3, 4]


def test_a_tracker_that_fails_is_told_and_changes_no_exit_code(
    acpc: Acpc, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    for command in (SCORE, ("sweep", "run", file)):
        answer = acpc(*command, "--log-to", f"tensorboard:{tmp_path}/taken")
        assert f"error: --log-to tensorboard:{tmp_path}/taken: " in answer.stderr
    assert len(list((tmp_path / "mine.sweep/results").iterdir())) == 2


def test_an_address_of_no_tracker_is_wrong_usage_before_anything_is_submitted(
    acpc: Acpc, party: JobParty, file: Path
) -> None:
    for command in (SCORE, ("sweep", "run", file)):
        answer = acpc(*command, "--log-to", "comet:mine", code=2)
        assert "wanted mlflow:URI, wandb:PROJECT or tensorboard:DIR" in answer.stderr
    assert not party.jobs
