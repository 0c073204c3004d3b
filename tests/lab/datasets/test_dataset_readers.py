"""Folders, videos and LeRobot folders: read exactly, and precise about what is wrong."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from acpc.contract import SMALL_ARRAYS, AcpcError, AnchorSource, FailedPrecondition
from acpc_client import AnchorArrays, DatasetAnchors
from acpc_client.anchor_arrays import digest_of
from acpc_client.errors import ArgumentError
from acpc_lab.datasets import drawn_from, lerobot, recognise
from acpc_server.data import DatasetStore
from lerobot_folder import CAMERA, write_lerobot, write_video
from PIL import Image
from public_formats import SIDE, Episode, episodes

TASK = """
name: top
state: observation.state
pixels: observation.images.top
labels: [{rule: coordinates, of: [0]}]
"""
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


def write_folder(path: Path, content: list[Episode], filmed: bool = False) -> Path:
    """PNG images, which the library reads no more than JPEG, keep every frame."""
    (path / "pixels").mkdir(parents=True)
    lengths = np.array([len(one["action"]) for one in content], np.int32)
    np.savez(path / "ep_len.npz", lengths)
    np.savez(path / "ep_offset.npz", np.cumsum(lengths) - lengths)
    for name in ("action", "pos_agent"):
        np.savez(path / f"{name}.npz", np.concatenate([np.stack(one[name]) for one in content]))
    for number, one in enumerate(content):
        if filmed:
            write_video(path / "pixels" / f"ep_{number}.mp4", one["pixels"])
        for step, frame in enumerate(one["pixels"]):
            if not filmed:
                Image.fromarray(frame).save(path / "pixels" / f"ep_{number}_step_{step}.png")
    return path


@pytest.fixture(scope="module")
def content() -> list[Episode]:
    return episodes(LENGTHS)


@pytest.fixture(scope="module")
def exact(content: list[Episode], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hdf5(tmp_path_factory.mktemp("exact") / "a.h5", content)


@pytest.fixture(scope="module")
def made(content: list[Episode], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every format of these tests, to be copied before it is damaged."""
    root = tmp_path_factory.mktemp("made")
    write_folder(root / "folder", content)
    write_folder(root / "video", content, filmed=True)
    for version in ("v2.1", "v3.0"):
        write_lerobot(root / version, content, version)
        write_lerobot(root / f"{version}-images", content, version, filmed=False)
    (root / "top.yaml").write_text(TASK)
    return root


def test_a_folder_without_loss_has_the_digest_of_the_file(made: Path, exact: Path) -> None:
    assert draw(made / "folder")[0] == draw(exact)[0]


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_lerobot_images_have_the_digest_of_the_file(made: Path, exact: Path, version: str) -> None:
    assert recognise(made / version) == "lerobot"
    assert draw(made / f"{version}-images", str(made / "top.yaml"))[0] == draw(exact)[0]


@pytest.mark.parametrize("name", ["video", "v2.1", "v3.0"])
def test_every_frame_of_a_video_is_the_one_of_its_row(
    made: Path, exact: Path, content: list[Episode], name: str
) -> None:
    """Videos refer forwards and backwards, and in 3.0 hold several episodes."""
    _, wanted = draw(exact)
    _, found = draw(made / name, "tworoom" if name == "video" else str(made / "top.yaml"))
    for small in SMALL_ARRAYS:
        np.testing.assert_array_equal(getattr(found, small), getattr(wanted, small))
    every = np.concatenate([np.stack(one["pixels"]) for one in content]).astype(int)
    flat = (-1, *every.shape[1:])
    pairs = zip(found.frames.reshape(flat), wanted.frames.reshape(flat), strict=True)
    for frame, own in pairs:
        nearest = every[np.abs(every - frame).mean(axis=(1, 2, 3)).argmin()]
        assert np.abs(nearest - own).mean() < 2


def test_the_only_camera_and_the_state_go_by_the_names_that_tasks_have(
    made: Path, tmp_path: Path
) -> None:
    task = TASK.replace(CAMERA, "pixels").replace("observation.state", "proprio")
    (tmp_path / "named.yaml").write_text(task)
    named = draw(made / "v3.0", str(tmp_path / "named.yaml"))
    assert named[0] == draw(made / "v3.0", str(made / "top.yaml"))[0]


def test_a_task_that_names_proprioception_has_it_in_the_digest(made: Path, exact: Path) -> None:
    """As a server has it, which draws from the same data as HDF5."""
    task = TASK.replace(CAMERA, "pixels").replace("observation.state", "pos_agent")
    (exact.parent / "own.yaml").write_text(f"{task}proprio: pos_agent\n")
    found, anchors = draw(made / "folder", str(exact.parent / "own.yaml"))
    assert anchors.proprio.shape == (9, 5, 2)
    source = AnchorSource(exact.name, "own.yaml", count=9, frameskip=3)
    with DatasetStore(exact.parent).drawn(source, history=2, horizon=3) as drawn:
        assert drawn.digest == found


def test_reading_tells_how_far_it_is_and_holds_a_slice(made: Path) -> None:
    told: list[tuple[int, int]] = []
    source = DatasetAnchors("folder", "tworoom", count=9, frameskip=3)
    with drawn_from(
        made / "folder", source, history=2, horizon=3, on_read=lambda *now: told.append(now)
    ) as anchors:
        assert told == []
        assert anchors.frames[0:4].shape == (4, 5, SIDE, SIDE, 3)
        assert anchors.frames[4:9].shape == (5, 5, SIDE, SIDE, 3)
    assert told == [(4, 9), (9, 9)]


Break = Callable[[Path], object]


def edit(name: str, change: Callable[[dict], object]) -> Break:
    def apply(path: Path) -> None:
        document = json.loads((path / name).read_text())
        change(document)
        (path / name).write_text(json.dumps(document))

    return apply


def cut(path: Path, share: float = 0.5) -> None:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def each(pattern: str, change: Break) -> Break:
    return lambda path: [change(one) for one in sorted(path.glob(pattern))]


def save(name: str, array: object) -> Break:
    return lambda path: np.savez(path / f"{name}.npz", array)


def timeless(path: Path) -> None:
    table = pq.read_table(path)
    at = table.schema.get_field_index("timestamp")
    times = pa.array(np.full(len(table), np.nan, np.float32))
    pq.write_table(table.set_column(at, "timestamp", times), path)


def write(name: str, text: str) -> Break:
    return lambda path: (path / name).write_text(text)


def info(**changes: object) -> Break:
    return edit("meta/info.json", lambda document: document.update(changes))


def gone(path: Path) -> None:
    path.unlink()


LISTED = "meta/episodes.jsonl"
SHORT = [np.full((SIDE, SIDE, 3), 9, np.uint8)] * 3
FAULTS: dict[str, tuple[str, Break, str]] = {
    "no lengths": ("folder", each("ep_offset.npz", gone), "'ep_offset' cannot be"),
    "pickled": ("folder", save("action", np.array([{}], object)), "'action' .*than plain"),
    "no column": ("folder", each("action.npz", gone), "'action' does not exist;"),
    "no frames": ("folder", each("pixels", shutil.rmtree), "'pixels' does not exist"),
    "few rows": ("folder", save("pos_agent", np.zeros((9, 2))), "'pos_agent' has 9 rows, but"),
    "text": ("folder", save("pos_agent", np.array(["a"] * 103)), "'pos_agent' must hold numbers"),
    "unequal index": ("folder", save("ep_len", np.array([5, 6])), "has 5 episodes, but ep_len"),
    "all empty": ("folder", save("ep_len", np.zeros(5, int)), "has 5 episodes, all of them empty"),
    "overlap": ("folder", save("ep_offset", np.zeros(5, int)), "makes episodes 0 and 1 overlap"),
    "negative": ("folder", save("ep_len", np.full(5, -1)), "of episode 0 is -1"),
    "no image": ("folder", each("pixels/ep_4_*", gone),
                 r"'pixels' row \d+: its file pixels/ep_4_step_\d+.jpeg does not exist"),
    "cut image": ("folder", each("pixels/*", cut), "row 0: is no whole JPEG or PNG image"),
    "other size": ("folder", each("pixels/ep_4_*", lambda p: Image.new("RGB", (8, 8)).save(p)),
                   r"is a frame \(8, 8, 3\); others are \(32, 32, 3\)"),
    "cut video": ("video", each("pixels/*", cut), r"row 0: is in a video 'ep_0.mp4' that"),
    "no video": ("video", each("pixels/ep_4.mp4", gone), "ep_4.mp4 does not exist"),
    "text video": ("video", each("pixels/*", lambda p: p.write_text("a" * 99)), "cannot be read"),
    "short video": ("video", each("pixels/ep_4.mp4", lambda p: write_video(p, SHORT)),
                    "its video ep_4.mp4 has 3 frames, but episode 4 has 40 rows"),
    "no json": ("v3.0", write("meta/info.json", "{"), "no readable meta"),
    "deep": ("v3.0", write("meta/info.json", "[" * 100_000), "no readable meta"),
    "old": ("v3.0", info(codebase_version="v1.6"), "layout"),
    "in Lance": ("v3.0", info(storage_format="lance"), "is stored as lance"),
    "escape": ("v2.1", info(data_path="../{episode_index}.parquet"),
               r"\.\./0.parquet leaves the dataset"),
    "no number in a name": ("v2.1", info(data_path="{}.parquet"), "'episode_index' cannot be read"),
    "no size of chunks": ("v2.1", info(chunks_size=0), "'episode_index' cannot be read"),
    "no number in a film": ("v2.1", info(video_path="{}.mp4"), "row 0: meta does not name its"),
    "no rate": ("v3.0", info(fps=float("nan")), "features or fps make no sense"),
    "endless": ("v2.1", write(LISTED, '{"episode_index": 0, "length": 1e999}'), "no readable list"),
    "huge": ("v2.1", write(LISTED, f'{{"episode_index": 0, "length": {10**30}}}'), "no readable l"),
    "no list": ("v2.1", each(LISTED, gone), "no readable list"),
    "more than memory": (
        "v2.1",
        write(LISTED, "".join(f'{{"episode_index": {n}, "length": {2**27}}}\n' for n in (0, 1))),
        r"of its \d+ rows does not fit",
    ),
    "a name of a gigabyte": ("v2.1", info(data_path="{episode_index:9999999999}"),
                             "is no template"),
    "a name that looks inside": ("v2.1", info(data_path="{episode_index.__class__}"),
                                 "is no template"),
    "no times": ("v3.0", each("data/*/*", timeless), r"row 0: has no frame at nan s of the video"),
    "no camera": ("v3.0", edit("meta/info.json", lambda d: d["features"].pop(CAMERA)),
                  "'observation.images.top' does not exist; did"),
    "no episodes": ("v3.0", each("meta/episodes", shutil.rmtree), "has 0 episodes"),
    "no file": ("v3.0", each("data/*/file-000.parquet", gone), "cannot be read"),
    "cut file": ("v2.1", each("data/*/*", cut), "'episode_index' cannot be read"),
    "other rows": (
        "v3.0",
        each("data/*/file-000.parquet", lambda p: pq.write_table(pq.read_table(p).slice(1), p)),
        "'episode_index' of its 102 rows does not fit the episodes in meta",
    ),
    "cut film": ("v3.0", each("videos/*/*/*", cut), "row 0: is in a video 'file-000.mp4' that"),
    "short film": ("v2.1", each("videos/*/*/*", lambda p: write_video(p, SHORT[:1])),
                   r"row \d+: has no frame at \d"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_said_precisely(made: Path, tmp_path: Path, fault: str) -> None:
    name, damage, message = FAULTS[fault]
    shutil.copytree(made / name, tmp_path / name)
    damage(tmp_path / name)
    task = "tworoom" if name in ("folder", "video") else str(made / "top.yaml")
    with pytest.raises(FailedPrecondition, match=message) as caught:
        draw(tmp_path / name, task)
    assert caught.value.message.startswith(f"dataset {name!r}")


def test_more_numbers_than_are_read_are_seen_before_they_are(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of some kilobytes may hold billions of equal ones."""
    monkeypatch.setattr(lerobot, "MAX_ROWS", 100)
    with pytest.raises(FailedPrecondition, match="'episode_index' cannot be read: holds 103 num"):
        lerobot.LeRobotDataset(made / "v3.0")


@pytest.mark.parametrize(
    ("path", "task", "format", "message"),
    [
        ("folder", "twoorm", "", "'twoorm' is no preset, and no file: .*did you mean 'tworoom'"),
        ("folder", "tworoom", "zarr", "found 'zarr'; wanted one of hdf5, lance, folder, video"),
        (".", "tworoom", "", "is none that is known; wanted one of hdf5"),
    ],
)
def test_a_wrong_argument_names_it(
    made: Path, path: str, task: str, format: str, message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        draw(made / path, task, format=format)


def test_a_missing_library_says_what_to_install(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(AcpcError, match=r"this needs av: pip install '\.\[video\]'"):
        draw(made / "video")


def test_a_task_that_does_not_fit_names_those_that_would(made: Path, exact: Path) -> None:
    """As the server's answer for its own HDF5 files."""
    for path in (made / "folder", exact):
        with pytest.raises(
            FailedPrecondition, match=r"'pusht' does not fit .* but 'tworoom' would"
        ):
            draw(path, "pusht")


@pytest.mark.parametrize("name", ["tworoom.h5.zst", "cube.tar.zst"])
def test_a_compressed_dataset_says_how_to_unpack_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x28\xb5\x2f\xfd")
    words = f"{name} is compressed; run: zstd -d {name}"
    with pytest.raises(FailedPrecondition, match=words):
        draw(tmp_path / name)
    with pytest.raises(FailedPrecondition, match=words):
        DatasetStore(tmp_path).fit(name, "tworoom", steps=3)
