"""HDF5 is drawn from as the server does; every other format is named with what converts it."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from acpc.contract import AnchorSource, FailedPrecondition
from acpc_client import AnchorArrays, DatasetAnchors, digest_of
from acpc_command import acpc_command
from acpc_lab.datasets import drawn_from
from acpc_server.data import DatasetStore
from public_formats import SIDE, Episode, episodes

TASK = "{name: top, state: pos_agent, labels: [{rule: coordinates, of: [0]}], proprio: pos_agent}"
LENGTHS = (1, 24, 7, 31, 40)


def draw(path: Path, task: str = "tworoom", **more: object) -> tuple[str, AnchorArrays]:
    source = DatasetAnchors(path.name, task, count=9, frameskip=3)
    with drawn_from(path, source, history=2, horizon=3, **more) as anchors:
        return digest_of(anchors), anchors.part(0, 9)


def write_hdf5(path: Path, content: list[Episode]) -> Path:
    lengths = np.array([len(one["action"]) for one in content])
    with h5py.File(path, "w") as file:
        for name in content[0]:
            file[name] = np.concatenate([np.stack(one[name]) for one in content])
        file["ep_len"], file["ep_offset"] = lengths, np.cumsum(lengths) - lengths
    return path


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hdf5(tmp_path_factory.mktemp("exact") / "a.h5", episodes(LENGTHS))


def test_a_task_that_names_proprioception_has_it_in_the_digest(exact: Path) -> None:
    (exact.parent / "own.yaml").write_text(TASK)
    found, anchors = draw(exact, str(exact.parent / "own.yaml"))
    assert anchors.proprio.shape == (9, 5, 2)
    source = AnchorSource(exact.name, "own.yaml", count=9, frameskip=3)
    with DatasetStore(exact.parent).drawn(source, history=2, horizon=3) as drawn:
        assert digest_of(drawn.anchors) == found


def test_reading_tells_how_far_it_is_and_holds_a_slice(exact: Path) -> None:
    told: list[tuple[int, int]] = []
    source = DatasetAnchors("a.h5", "tworoom", count=9, frameskip=3)
    with drawn_from(
        exact, source, history=2, horizon=3, on_read=lambda *now: told.append(now)
    ) as anchors:
        assert told == []
        assert anchors.frames[0:4].shape == (4, 5, SIDE, SIDE, 3)
        assert anchors.frames[4:9].shape == (5, 5, SIDE, SIDE, 3)
    assert told == [(4, 9), (9, 9)]


def test_a_task_that_does_not_fit_names_those_that_would(exact: Path) -> None:
    """As the server's answer for its own HDF5 files."""
    with pytest.raises(FailedPrecondition, match=r"'pusht' does not fit .* but 'tworoom' would"):
        draw(exact, "pusht")


def other_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["observations"] = np.zeros((2, 4))


def packed(path: Path) -> None:
    path.write_bytes(b"\x28\xb5\x2f\xfd")


def files(*names: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        for name in names:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(b"")

    return write


CONVERT = "is not HDF5 or Lance; `swm convert {0} {0}.h5 -f hdf5` makes it (zstd -d first"
FORMATS: dict[str, tuple[Callable[[Path], None], str]] = {
    "so101": (files("meta/info.json", "data/chunk-000/file-000.parquet"), CONVERT),
    "tworoom.h5.zst": (packed, CONVERT),
    "other.h5": (
        other_hdf5,
        "another layout, with ['observations'] at its root; wanted: a data",
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_another_format_is_named_with_what_converts_it(tmp_path: Path, name: str) -> None:
    """By the lab, by a server below whose root it lies, and by both commands."""
    write, what = FORMATS[name]
    write(tmp_path / name)
    with pytest.raises(FailedPrecondition) as here:
        draw(tmp_path / name)
    with pytest.raises(FailedPrecondition) as there:
        DatasetStore(tmp_path).fit(AnchorSource(name, "tworoom"), history=1, horizon=3)
    upload = ["--target", "127.0.0.1:1", "--task", "tworoom"]
    said = [acpc_command("init")(tmp_path / name, "--out", tmp_path / "t.yaml", code=1).stderr]
    if write is not packed:  # to upload, any file may hold arrays
        answer = acpc_command("anchors")("upload", tmp_path / name, *upload, code=None)
        said.append(answer.stderr)
    assert here.value.reason == there.value.reason == "DATASET_FORMAT"
    for words in (" ".join(it.split()) for it in (here.value.message, there.value.message, *said)):
        assert what.format(name) in words and name in words
