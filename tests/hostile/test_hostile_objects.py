"""Object files that mislead or are damaged: data all the same, within memory, never run."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import processes
import pytest
from hostile_objects import HOSTILE_OBJECTS, WITNESS

SERIES = Path(__file__).with_name("object_series.py")
BASE = Path(__file__).parents[1] / "server/importing/files/paper-run/lewm_epoch_2_object.ckpt"

# Files that several guards would reject: which of them it is.
WORDS = {
    "two-pickles": "two members are named 'data.pkl'", "deflated": "compressed or encrypted",
    "overlapping": "members that share bytes", "torchscript": "a TorchScript program",
    "big-endian": "big-endian order", "large-pickle": "a pickle of",
    "memo-index": "asked for more than 1024 MiB or 10 s",
    "deep-tuple-key": "ended the process that described it",
    "sharing": "bytes of tensors come from", "named-often": "bytes of tensors come from",
    "storage-lies": "is not as long as its tensors say",
    "shared-modules": "more than 100000 modules",
    "not-persistent": "encoder is a 'jepa.JEPA', not a ViTModel", "far-offset": "past the end",
}  # fmt: skip


def series(folder: Path, *arguments: object) -> dict[str, Any]:
    """What a process of its own tells of a series, read in ``folder``."""
    path = os.pathsep.join((str(SERIES.parent), os.environ.get("PYTHONPATH", "")))
    command = [sys.executable, str(SERIES), *map(str, arguments)]
    done = processes.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, seconds=7000)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def check(told: dict[str, Any], folder: Path) -> None:
    assert told["faults"] == []
    assert told["executed"] == []
    assert not told["witness"] and not (folder / WITNESS).exists()
    assert told["peak"] < 200 + 3 * told["largest"]


def test_hand_made_files_run_nothing(tmp_path: Path) -> None:
    told = series(tmp_path, "hostile")
    check(told, tmp_path)
    assert len(HOSTILE_OBJECTS) >= 30
    # One reads, a state dict without a name of the network, which its plan rejects.
    assert told["read"] == ["not-persistent"]
    assert told["outcomes"]["rejected"] == len(HOSTILE_OBJECTS)
    assert {name for name, words in WORDS.items() if words not in told["messages"][name]} == set()


@pytest.mark.parametrize(
    "count", [500, pytest.param(20_000, marks=[pytest.mark.nightly, pytest.mark.timeout(7200)])]
)
def test_damaged_files_are_read_or_rejected(tmp_path: Path, count: int) -> None:
    told = series(tmp_path, "mutated", BASE, "--count", count)
    check(told, tmp_path)
    assert min(told["outcomes"][what] for what in ("read", "rejected")) > count / 20
