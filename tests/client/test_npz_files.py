"""Arrays of a file that the caller names."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from acpc_client import read_npz
from acpc_client.errors import ArgumentError


def test_one_array_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.save(tmp_path / "a.npy", np.zeros(3))
    (tmp_path / "a.npy").rename(path)
    with pytest.raises(ArgumentError, match=r"a\.npz: is not an NPZ file"):
        read_npz(path)


def test_an_archive_of_other_things_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, objects=np.array([{}]))
    with pytest.raises(ArgumentError, match=r"a\.npz: .* more than plain arrays"):
        read_npz(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "no array")
    with pytest.raises(ArgumentError, match=r"a\.npz: its entry 'notes.txt' is not an array"):
        read_npz(path)


def test_a_small_file_that_unpacks_to_much_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("zeros.npy", "w") as entry,
    ):
        for _ in range(17):
            entry.write(bytes(2**24))
    with pytest.raises(ArgumentError, match=r"a\.npz: declares 285212672 bytes, packed in"):
        read_npz(path)
