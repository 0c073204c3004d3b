"""A run of the paper's layout is imported and scored: part of every test run."""

import json
import sys
from pathlib import Path

import processes
import pytest
from example_scripts import EXAMPLES


@pytest.mark.timeout(900)
def test_the_run_is_imported_and_scored(tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / "import_demo.py", "--out", tmp_path]
    printed = " ".join(processes.run(command, seconds=900).stdout.split())
    assert "config.yaml, data.dataset.frameskip" in printed and "PASSED" in printed
    told = json.loads((tmp_path / "checkpoints/run/source.json").read_text())
    assert [*told["weights"]] == ["weights_epoch_1.pt", "weights_epoch_2.pt"]
    assert told["augmentation"] == {"type": "gaussian", "std": 0.16}
