"""Files that are broken or mean harm: each is refused with its name and what is wrong."""

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np
import pytest
from acpc.contract import AnchorSource
from acpc_server.data import load_task, open_dataset
from acpc_server.errors import (
    AcpcError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
)
from anchor_batches import drawn_anchors
from public_dataset import PublicColumns, public_columns, write_public_dataset
from waiting import wait_until

Break = Callable[[Path], object]


def content() -> PublicColumns:
    return public_columns((1, 24, 20))


def use(root: Path, name: str = "a.h5") -> None:
    with open_dataset(root, name) as dataset:
        source = AnchorSource(dataset=name, task="tworoom", count=5)
        drawn_anchors(dataset, load_task("tworoom", root), source, history=1, horizon=2)


def with_columns(**override: np.ndarray | None) -> Break:
    return lambda path: write_public_dataset(path, content(), override=override)


def edited(edit: Callable[[h5py.File], object]) -> Break:
    def write(path: Path) -> None:
        write_public_dataset(path, content())
        with h5py.File(path, "r+", libver="latest") as file:
            edit(file)

    return write


def replaced(name: str, **arguments: object) -> Break:
    def edit(file: h5py.File) -> None:
        del file[name]
        file.create_dataset(name, **arguments)

    return edited(edit)


def linked(name: str, link: object) -> Break:
    def edit(file: h5py.File) -> None:
        del file[name]
        file[name] = link

    return edited(edit)


def virtual(file: h5py.File) -> None:
    del file["action"]
    layout = h5py.VirtualLayout((45, 2), "f4")
    layout[:] = h5py.VirtualSource("/etc/passwd", "action", shape=(45, 2))
    file.create_virtual_dataset("action", layout)


def truncated(path: Path) -> None:
    write_public_dataset(path, content())
    path.write_bytes(path.read_bytes()[:-2000])


def damaged_chunk(path: Path) -> None:
    flat = np.zeros((45, 12, 12, 3), np.uint8)
    write_public_dataset(path, content(), compress=True, override={"pixels": flat})
    with h5py.File(path) as file:
        chunks = [file["pixels"].id.get_chunk_info(row) for row in range(45)]
    with path.open("r+b") as raw:
        for chunk in chunks:
            raw.seek(chunk.byte_offset)
            raw.write(b"\xff" * chunk.size)


def without_checksums(path: Path, old: bytes, new: bytes) -> None:
    """A file whose headers have no checksums, with bytes in place of others."""
    with h5py.File(path, "w", libver="earliest") as file:
        for name, array in content().columns.items():
            file[name] = array
        file["ep_len"], file["ep_offset"] = content().lengths, content().offsets
        del file["action"]
        file.create_dataset(
            "action", shape=(45, 2), dtype="f4", chunks=(1, 2), **hdf5plugin.Blosc()
        )
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new))


def unknown_filter(path: Path) -> None:
    """Blosc's number changed to one that nobody has."""
    without_checksums(path, (32001).to_bytes(2, "little"), (32767).to_bytes(2, "little"))


def of_a_newer_library(path: Path) -> None:
    """The version of a chunked layout, 3, changed to one that no library writes yet."""
    without_checksums(path, b"\x03\x02\x03", b"\x09\x02\x03")


def with_a_newer_superblock(path: Path) -> None:
    without_checksums(path, b"\x89HDF\r\n\x1a\n\x00", b"\x89HDF\r\n\x1a\n\x09")


def being_written(path: Path) -> None:
    with h5py.File(path.with_suffix(".writer"), "w", libver="latest") as file:
        file["ep_len"] = [1]
        file.flush()
        shutil.copy(path.with_suffix(".writer"), path)  # as its writer's end would leave it


def bytes_of(data: bytes) -> Break:
    return lambda path: path.write_bytes(data)


COLUMN = "dataset 'a.h5', column "
NEWER = "it was written by a newer HDF5 than .* --upgrade h5py, or .*libver='v114'"
CASES: dict[str, tuple[Break, str]] = {
    "empty file": (bytes_of(b""), "'a.h5' is not a readable HDF5 file"),
    "truncated": (truncated, "'a.h5' is not a readable HDF5 file"),
    "being written": (being_written, "still being written"),
    "a folder": (lambda path: path.mkdir(), "'a.h5' is not HDF5 or Lance"),
    "a pipe": (os.mkfifo, "'a.h5' is not a regular file"),
    "damaged chunk": (damaged_chunk, COLUMN + "'pixels': rows .* cannot be read"),
    "unknown filter": (unknown_filter, COLUMN + "'action' needs HDF5 filter 32767 .*not installed"),
    "newer layout": (of_a_newer_library, COLUMN + f"'action' cannot be read here: {NEWER}"),
    "newer file": (with_a_newer_superblock, f"'a.h5' is not a readable HDF5 file here: {NEWER}"),
    "no ep_len": (with_columns(ep_len=None), "'a.h5' is HDF5 of another layout, with .*'pixels'"),
    "no pixels": (with_columns(pixels=None), COLUMN + r"'pixels' does not exist; .*'pos_agent'"),
    "float ep_len": (with_columns(ep_len=np.array([1.0, 24.0, 20.0])),
        COLUMN + r"'ep_len' must be one axis of integers; is float64 \(3,\)"),
    "table ep_len": (with_columns(ep_len=np.ones((3, 1), np.int32)),
        COLUMN + r"'ep_len' must be one axis of integers; is int32 \(3, 1\)"),
    "no episodes": (with_columns(ep_len=np.zeros(0, np.int32), ep_offset=np.zeros(0, np.int64)),
        COLUMN + "'ep_len' has 0 episodes"),
    "negative length": (with_columns(ep_len=np.array([1, -24, 20], np.int32)),
        COLUMN + "'ep_len' of episode 1 is -24"),
    "negative offset": (with_columns(ep_offset=np.array([-1, 1, 25])),
        COLUMN + "'ep_offset' of episode 0 is -1"),
    "offset that overflows": (with_columns(ep_offset=np.array([0, 1, 2**64 - 1], np.uint64)),
        COLUMN + "'ep_offset' of episode 2 is 18446744073709551615"),
    "fewer offsets": (with_columns(ep_offset=np.array([0, 1])),
        COLUMN + "'ep_offset' has 2 episodes, but ep_len has 3"),
    "overlap": (with_columns(ep_offset=np.array([24, 1, 25])),
        COLUMN + "'ep_offset' makes episodes 1 and 0 overlap"),
    "episode beyond the rows": (with_columns(ep_offset=np.array([0, 1, 26])),
        COLUMN + "'pixels' has 45 rows, but episode 2 ends at row 46"),
    "short state column": (with_columns(pos_agent=np.zeros((44, 2))),
        COLUMN + "'pos_agent' has 44 rows, but episode 2 ends at row 45"),
    "pixels channel first": (with_columns(pixels=np.zeros((45, 3, 12, 12), np.uint8)),
        COLUMN + r"'pixels' must .*\(rows, height, width, 3\).*\(45, 3, 12, 12\) \(docs/tasks.md"),
    "float pixels": (with_columns(pixels=np.zeros((45, 12, 12, 3), np.float32)),
        COLUMN + "'pixels' must hold uint8 frames .*; is float32"),
    "grey pixels": (with_columns(pixels=np.zeros((45, 12, 12, 1), np.uint8)),
        COLUMN + r"'pixels' must hold uint8 frames of shape .*\(45, 12, 12, 1\)"),
    "enormous frames": (replaced("pixels", shape=(45, 10**5, 10**5, 3), dtype="u1"),
        COLUMN + "'pixels' has frames with sides outside 1 to 4096"),
    "enormous chunk": (
        replaced("action", shape=(10**6, 2), dtype="f4", chunks=(10**8, 2), maxshape=(None, 2)),
        COLUMN + "'action' has chunks of 800000000 bytes; at most 268435456",
    ),
    "enormous column": (replaced("action", shape=(10**8, 2000), dtype="f4"),
        COLUMN + "'action' holds 800000000000 bytes"),
    "enormous row count": (replaced("action", shape=(10**12, 2), dtype="f4"),
        COLUMN + "'action' must have 1 axis or more and at most 134217728 rows"),
    "enormous episode count": (replaced("ep_len", shape=(10**8,), dtype="i4"),
        COLUMN + "'ep_len' has 100000000 episodes"),
    "scalar action": (replaced("action", data=1.0), COLUMN + "'action' must have 1 axis or more"),
    "empty rows": (replaced("action", shape=(45, 0), dtype="f4"),
        COLUMN + "'action' holds 0 bytes"),
    "cubic action": (replaced("action", shape=(45, 2, 2), dtype="f4"),
        COLUMN + r"'action' must hold numbers of shape .*float32 \(45, 2, 2\)"),
    "object action": (replaced("action", shape=(45,), dtype=h5py.string_dtype()),
        COLUMN + "'action' must hold plain numbers; is object"),
    "compound action": (replaced("action", shape=(45,), dtype=[("x", "f4")]),
        COLUMN + "'action' must hold plain numbers"),
    "soft link": (linked("action", h5py.SoftLink("/pos_agent")), "is a soft or external link"),
    "external link": (linked("action", h5py.ExternalLink("/etc/passwd", "/action")),
        COLUMN + "'action' is a soft or external link"),
    "external storage": (
        replaced("action", shape=(45, 2), dtype="f4", external=[("/etc/passwd", 0, 360)]),
        COLUMN + "'action' keeps its rows in other files",
    ),
    "virtual dataset": (edited(virtual), COLUMN + "'action' keeps its rows in other files"),
    "group": (edited(lambda file: file.pop("action") and file.create_group("action")),
        COLUMN + "'action' is a group"),
    "infinite action": (with_columns(action=np.full((45, 2), np.inf, np.float32)),
        COLUMN + "'action' holds infinite values"),
    "no state but NaN": (with_columns(pos_agent=np.full((45, 2), np.nan)),
        COLUMN + "'pos_agent' has 0 rows without NaN; statistics need at least 2"),
    "NaN endpoint": (with_columns(pos_agent=np.where(np.arange(45) % 5, np.nan, 1.0)[:, None]),
        COLUMN + r"'pos_agent': row \d+, the endpoint of an anchor, is not finite"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, case: str) -> None:
    write, message = CASES[case]
    write(tmp_path / "a.h5")
    with pytest.raises(FailedPrecondition, match=message):
        use(tmp_path)


def test_the_sound_file_behind_these_cases_is_read(tmp_path: Path) -> None:
    write_public_dataset(tmp_path / "a.h5", content(), compress=True)
    use(tmp_path)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("sub\\a.h5", InvalidArgument, "relative to the server's root"),
        ("/etc/passwd", PermissionDenied, "plain relative path"),
        ("sub/../../a.h5", PermissionDenied, "plain relative path"),
        ("./a.h5", PermissionDenied, "plain relative path"),
        ("sub//a.h5", PermissionDenied, "plain relative path"),
        ("link.h5", PermissionDenied, "passes the symbolic link 'link.h5'"),
        ("linked/a.h5", PermissionDenied, "passes the symbolic link 'linked'"),
        ("a.h5/b.h5", NotFound, "does not exist"),
        ("x" * 5000, FailedPrecondition, "cannot be read"),
    ],
)
def test_a_path_that_leaves_the_root_is_refused(
    tmp_path: Path, name: str, error: type[AcpcError], message: str
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    for folder in (root, outside, tmp_path):
        write_public_dataset(folder / "a.h5", content())
    (root / "link.h5").symlink_to(root / "a.h5")
    (root / "linked").symlink_to(outside)
    with pytest.raises(error, match=message), open_dataset(root, name):
        pass


# Names a file below the root, and a link to one outside it, in turn until its input ends.
SWAP = """
import os, select, sys
inside, outside, name = sys.argv[1:]
while not select.select([sys.stdin], [], [], 0)[0]:
    os.link(inside, name + ".next"); os.replace(name + ".next", name)
    os.symlink(outside, name + ".next"); os.replace(name + ".next", name)
"""


@contextmanager
def swapped(inside: Path, outside: Path, name: Path) -> Iterator[None]:
    command = [sys.executable, "-c", SWAP, inside, outside, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as swapper:
        try:
            wait_until(lambda: os.path.lexists(name))
            yield
        finally:
            swapper.communicate()
        assert swapper.returncode == 0


@pytest.mark.process
def test_a_file_swapped_for_a_link_is_never_read_outside_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    write_public_dataset(root / "inside.h5", public_columns((24, 20)))
    write_public_dataset(tmp_path / "outside.h5", public_columns((7,)))
    task = "name: {}\nstate: pos_agent\nframeskip: 2\nlabels: [{{rule: coordinates, of: [0]}}]\n"
    (root / "inside.yaml").write_text(task.format("inside"))
    (tmp_path / "outside.yaml").write_text(task.format("outside"))
    seen: Counter[object] = Counter()
    with (
        swapped(root / "inside.h5", tmp_path / "outside.h5", root / "a.h5"),
        swapped(root / "inside.yaml", tmp_path / "outside.yaml", root / "a.yaml"),
    ):
        while seen["inside"] < 200 or seen[2] < 50:
            with suppress(PermissionDenied, FailedPrecondition):  # a link, or replaced meanwhile
                seen[load_task("a.yaml", root).name] += 1
            with suppress(PermissionDenied, FailedPrecondition), open_dataset(root, "a.h5") as file:
                seen[len(file.lengths)] += 1
    assert set(seen) == {"inside", 2}


def test_flipped_bytes_never_escape_as_another_error(tmp_path: Path) -> None:
    sound = write_public_dataset(tmp_path / "sound.h5", public_columns((17, 24), side=4))
    raw = sound.read_bytes()
    refused = 0
    for seed in range(40):
        chance = random.Random(seed)
        data = bytearray(raw)
        for _ in range(chance.choice([1, 4, 32])):
            data[chance.randrange(len(data))] = chance.choice([0, 255, chance.randrange(256)])
        (tmp_path / "a.h5").write_bytes(data)
        try:
            use(tmp_path)
        except AcpcError:
            refused += 1
    assert 5 < refused < 40
