"""Folders of checkpoints are written whole or not at all."""

import resource
from pathlib import Path

import pytest
import torch
from acpc_server.errors import AlreadyExists
from acpc_server.models import new_folder, save_weights

pytestmark = pytest.mark.edge


def test_tensors_of_one_storage_become_two(tmp_path: Path) -> None:
    whole = torch.arange(4.0)
    save_weights({"a": whole, "b": whole}, tmp_path / "weights.pt")
    read = torch.load(tmp_path / "weights.pt")
    assert read["a"].untyped_storage().data_ptr() != read["b"].untyped_storage().data_ptr()
    assert torch.equal(read["a"], read["b"])


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"), new_folder(tmp_path / "new") as folder:
            save_weights({"a": torch.zeros(10_000)}, folder / "weights.pt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    with pytest.raises(AlreadyExists, match="exists"), new_folder(tmp_path):
        pass
