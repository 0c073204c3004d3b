"""Arrays of a file that the caller names."""

from pathlib import Path

import numpy as np
import pytest
from acpc_client.errors import ArgumentError
from acpc_lab.tables import read_npz


def test_one_array_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.save(tmp_path / "a.npy", np.zeros(3))
    (tmp_path / "a.npy").rename(path)
    with pytest.raises(ArgumentError, match="is not an NPZ file"):
        read_npz(path)
