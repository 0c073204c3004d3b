"""``acpc init``: what it sees of a dataset, what it asks for, and that a server reads its file."""

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import h5py
import numpy as np
import pytest
from acpc.contract import AnchorSource
from acpc.datasets import parse_task
from acpc_client import DatasetAnchors
from acpc_command import Acpc, acpc_command
from acpc_lab.datasets import action_scale, drawn_from
from acpc_server.data import DatasetStore
from public_dataset import public_columns, write_public_dataset

LENGTHS = [40] * 4


@pytest.fixture
def acpc() -> Acpc:
    return acpc_command("init")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("datasets")
    content = public_columns(LENGTHS, state="where", state_dim=5)
    content.columns["pos_agent"] = content.columns["where"][:, :3] + 1
    write_public_dataset(root / "rooms.h5", content)
    return root


def test_columns_are_shown_and_the_file_is_one_the_server_reads(
    acpc: Acpc, root: Path, tmp_path: Path
) -> None:
    file = root / "mine.yaml"
    answer = acpc(root / "rooms.h5", "--frameskip", 3, "--out", file)
    for row in (("pixels", "frames", "(160, 12, 12, 3)"), ("where", "numbers", "(160, 5)")):
        (line,) = (line for line in answer.stdout.splitlines() if line.startswith(row[0]))
        assert all(cell in line for cell in row)
    assert "32 windows of 3 + 8 frames in 4 of 4 episodes" in answer.stdout
    assert "fewer than the 100 anchors" in answer.stdout
    source = AnchorSource("rooms.h5", "mine.yaml", count=5)
    with DatasetStore(root).drawn(source, history=3, horizon=8) as drawn:
        assert drawn.anchors.action_blocks.shape == (5, 10, 6)
        assert drawn.anchors.endpoint_states.shape == (5, 3)
    file.unlink()


def test_what_a_dataset_does_not_say_is_marked_and_what_is_given_is_not(
    acpc: Acpc, root: Path, tmp_path: Path
) -> None:
    known = ["--frameskip", 2, "--state", "where", "--labels", "4,0"]
    acpc(root / "rooms.h5", *known, "--out", tmp_path / "known.yaml")
    assert "CHECK" not in (tmp_path / "known.yaml").read_text()
    assert parse_task("known", (tmp_path / "known.yaml").read_bytes()).labels[0].of == [4, 0]
    answer = acpc(root / "rooms.h5", "--out", tmp_path / "open.yaml", code=2)
    assert not (tmp_path / "open.yaml").exists()
    assert "frameskip: found 5: a window of 3 + 8 frames takes 55 rows" in answer.stderr
    assert "wanted at most 3" in answer.stderr
    acpc(root / "rooms.h5", "--frameskip", 1, "--out", tmp_path / "open.yaml")
    marked = [line for line in (tmp_path / "open.yaml").read_text().splitlines() if "CHECK" in line]
    assert [line.partition(":")[0] for line in marked] == ["state", "labels"]
    assert 'there are also "where"' in marked[0]


def test_a_file_that_is_there_is_kept_unless_forced(
    acpc: Acpc, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "task.yaml"
    file.write_text("mine")
    absent = acpc("at/the/server.h5", "--out", tmp_path / "new.yaml", code=2)
    assert "give the command there" in absent.stderr
    known = [root / "rooms.h5", "--frameskip", 3, "--out", file]
    answer = acpc(*known, code=2)
    assert "give --force to overwrite it" in answer.stderr
    acpc(*known, "--force", "--labels", "0,9", code=1)  # beyond the state
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left")))
        answer = acpc(*known, "--force", code=1)
        assert f"{file}: No space left" in answer.stderr
    assert file.read_text() == "mine"
    assert acpc(*known, "--force").exit_code == 0 and file.read_text() != "mine"


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        (["--state", "place"], "state: found 'place', wanted one of pos_agent, where"),
        (["--pixels", "action"], "pixels: found 'action', wanted one of pixels"),
        (["--format", "zarr"], "found 'zarr'; wanted one of hdf5, lance"),
        (["--labels", "x"], "found 'x', wanted numbers like 1,2"),
    ],
)
def test_what_is_not_there_is_named_beside_what_is(
    acpc: Acpc, root: Path, tmp_path: Path, more: list[str], wrong: str
) -> None:
    answer = acpc(root / "rooms.h5", "--out", tmp_path / "task.yaml", *more, code=2)
    assert wrong in answer.stderr


def test_frames_in_another_form_come_with_the_page_that_writes_others(
    acpc: Acpc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = public_columns(LENGTHS)
    x = content.columns["pixels"] = content.columns["pixels"].transpose(0, 3, 1, 2)
    write_public_dataset(tmp_path / "rooms.h5", content)
    asked = "--frameskip", 1, "--out", tmp_path / "t.yaml"
    answer = acpc(tmp_path / "rooms.h5", *asked, code=2)
    shown = " ".join(answer.stdout.split())
    assert f"is uint8 {x.shape}" in shown and "docs/tasks.md" in shown
    assert "pixels: no column of the dataset can be the pixels" in answer.stderr
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "docs/tasks.md").read_text()
    exec(page.partition("```python\n")[2].partition("```")[0], {})  # noqa: S102 - our own page
    acpc("rooms.h5", "--pixels", "frames", "--frameskip", 1, "--out", "rooms.yaml")
    assert 'pixels: "frames"' in Path("rooms.yaml").read_text()


def test_actions_are_normalised_as_the_server_normalises_its_own(root: Path) -> None:
    source = DatasetAnchors("rooms.h5", "tworoom", count=4, frameskip=2)
    with (
        drawn_from(root / "rooms.h5", source, history=2, horizon=3) as drawn,
        h5py.File(root / "rooms.h5") as file,
    ):
        actions, blocks = file["action"][:], drawn.action_blocks
        windows = np.lib.stride_tricks.sliding_window_view(actions, 8, axis=0)
    scale = action_scale(root / "rooms.h5", "tworoom", frameskip=2)
    made = scale.blocks(windows.transpose(0, 2, 1))  # (windows, 8, width) to blocks of 2
    assert made.shape[1:] == (4, blocks.shape[2])
    assert all((made == one).all(axis=(1, 2)).any() for one in blocks)
    back = scale.actions(made)
    np.testing.assert_allclose(back[0], actions[:8], atol=1e-5)
