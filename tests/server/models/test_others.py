"""Folders that hold something else than a checkpoint: told by name, with the next command."""

import json
from pathlib import Path

import pytest
from acpc_server.errors import NotFound
from acpc_server.models import list_checkpoints, list_others, load_checkpoint
from acpc_server.models.folder import find_checkpoint
from public_checkpoint import public_config, write_checkpoint
from torch import device

# Files of a folder, and what is said of it.
CASES = {
    "run": (["config.yaml", "a_epoch_1_object.ckpt"], "no config.json", "acpc-server import run"),
    "pldm": (["epoch=1_sample_step=20.ckpt"], "PLDM's own repository", ""),
    "dino/checkpoints": (["model_3.pth"], "no config.json", "import dino/checkpoints"),
    "models--user--repo": (["x"], "files are links", "acpc-server pull user/repo"),
    "epochs": (["weights_epoch_1.pt", "weights_epoch_2.pt"], "2 epochs", "weights_epoch_2.pt"),
    "pickled": (["a_object.ckpt"], "a pickled model", "acpc-server import pickled"),
    "whole": (["weights.pt"], "the tree lies under model", "acpc-server import whole"),
    "other": (["weights.pt"], "TDMPC2", ""),
    "bare": ([], "without a weights file", ""),
}
CONFIGS = {
    "epochs": public_config(), "pickled": public_config(), "whole": {"model": public_config()},
    "other": {"_target_": "stable_worldmodel.wm.tdmpc2.TDMPC2"}, "bare": public_config(),
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "good")
    (tmp_path / "notes").mkdir()
    for name, (files, *_) in CASES.items():
        (tmp_path / name).mkdir(parents=True)
        for file in files:
            (tmp_path / name / file).write_bytes(b"x")
        if name in CONFIGS:
            (tmp_path / name / "config.json").write_text(json.dumps(CONFIGS[name]))
    return tmp_path


def test_each_is_listed_with_its_reason(root: Path) -> None:
    found = dict(list_others(root))
    assert found.keys() == CASES.keys()
    for name, (_, problem, command) in CASES.items():
        assert problem in found[name].problem
        assert command in found[name].command and bool(command) == bool(found[name].command)
    assert "good" in {entry.name for entry in list_checkpoints(root)}


def test_a_request_for_one_says_the_same(root: Path) -> None:
    for ask in (find_checkpoint, lambda *x: load_checkpoint(*x, device=device("cpu"))):
        with pytest.raises(NotFound, match=r"what training wrote; next: acpc-server import run"):
            ask(root, "run")
