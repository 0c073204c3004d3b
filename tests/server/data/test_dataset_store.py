"""The store joins datasets and tasks below one root.

A file of anchors is opened for every read, and must stay what it was.
"""

from pathlib import Path

import pytest
from acpc.contract import AnchorSource
from acpc.datasets import preset_names
from acpc_server.data import DatasetFit, DatasetStore
from acpc_server.errors import FailedPrecondition, InvalidArgument
from public_dataset import EPISODES, public_columns, write_public_dataset

TASK = "name: t\nstate: pos_agent\nframeskip: 2\nlabels: [{rule: coordinates, of: [0]}]\n"


@pytest.fixture
def store(tmp_path: Path) -> DatasetStore:
    write_public_dataset(tmp_path / "a.h5", public_columns())
    (tmp_path / "t.yaml").write_text(TASK)
    return DatasetStore(tmp_path)


def fit(store: DatasetStore, dataset: str, task: str = "tworoom", **changed: object) -> DatasetFit:
    return store.fit(AnchorSource(dataset, task, **changed), history=1, horizon=3)


def test_fit_counts_windows_and_action_width(store: DatasetStore) -> None:
    def windows(span: int) -> tuple[int, int]:
        starts = [max(0, length - span + 1) for length in EPISODES]
        return sum(starts), sum(count > 0 for count in starts)

    for task, skip, used in (("t.yaml", None, 2), ("tworoom", None, 5), ("tworoom", 3, 3)):
        for by_episode, count in zip((False, True), windows(4 * used), strict=True):
            found = fit(store, "a.h5", task, frameskip=skip, one_per_episode=by_episode)
            assert found == DatasetFit(count, used, 2, 0)
    with pytest.raises(InvalidArgument, match="frameskip: is 0"):
        fit(store, "a.h5", frameskip=0)


def test_datasets_and_tasks_are_listed_by_name_and_links_are_not(
    store: DatasetStore, tmp_path: Path
) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("inner/b.hdf5", "inner/t.json", "inner/notes.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "link.h5").symlink_to(tmp_path / "a.h5")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "folder.h5").mkdir()
    assert [one.name for one in store.datasets()] == ["a.h5", "inner/b.hdf5"]
    assert store.datasets()[0].size_bytes == (tmp_path / "a.h5").stat().st_size
    tasks = store.tasks()
    assert [one.name for one in tasks] == [*preset_names(), "inner/t.json", "t.yaml"]
    rooms = next(one for one in tasks if one.name == "tworoom")
    assert (rooms.state, rooms.frameskip, rooms.history) == ("pos_agent", 5, 3)


def test_a_lance_table_is_listed_and_any_folder_says_what_to_do(
    store: DatasetStore, tmp_path: Path
) -> None:
    """Only names are looked at; what is in such a folder is none."""
    for name in ("rooms.lance/_versions", "so101/meta", "inner", "none"):
        (tmp_path / name).mkdir(parents=True)
    for name in (
        "rooms.lance/b.h5",
        "so101/meta/info.json",
        "inner/c.h5",
    ):
        (tmp_path / name).write_text("")
    (tmp_path / "link.lance").symlink_to(tmp_path / "rooms.lance")
    listed = {one.name: (one.format, one.size_bytes) for one in store.datasets()}
    size = (tmp_path / "a.h5").stat().st_size
    assert listed == {
        "a.h5": ("hdf5", size),
        "inner/c.h5": ("hdf5", 0),
        "rooms.lance": ("lance", 0),
    }
    wanted = r"is a Lance table.*`acpc anchors upload rooms.lance --task TASK` makes"
    with pytest.raises(FailedPrecondition, match=wanted) as it:
        fit(store, "rooms.lance")
    assert it.value.reason == "DATASET_FORMAT"
    with pytest.raises(FailedPrecondition, match="'none' is not HDF5 or Lance; `swm convert"):
        fit(store, "none")
