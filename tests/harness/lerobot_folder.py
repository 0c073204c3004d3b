"""Writes LeRobot folders as that library documents them, layouts 2.1 and 3.0.

Facts from huggingface.co/docs/lerobot (Dataset v3.0) and the templates in its ``datasets/utils``:
``meta/info.json`` holds version, fps, features and path templates; 2.x has ``meta/episodes.jsonl``
and a Parquet file and video an episode, 3.0 ``meta/episodes/*/*.parquet`` with the file and the
times of each episode, and many episodes in each file.
"""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from public_formats import SIDE, Episode

FPS = 10
CAMERA = "observation.images.top"
TEMPLATES = {
    "v2.1": (
        "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    ),
    "v3.0": (
        "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    ),
}


def write_video(path: Path, frames: Sequence[np.ndarray]) -> None:
    """An H.264 video whose frames refer forwards and backwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"g": "12", "bf": "2"})
        stream.width, stream.height, stream.pix_fmt = SIDE, SIDE, "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def write_lerobot(
    root: Path, content: Sequence[Episode], version: str, *, filmed: bool = True
) -> Path:
    """Writes episodes; 3.0 puts three of them into each file."""
    grouped = 1 if version == "v2.1" else 3
    listed: list[dict[str, Any]] = []
    for first in range(0, len(content), grouped):
        own = range(first, min(first + grouped, len(content)))
        place = _place(version, first // grouped)
        table = pa.concat_tables([_rows(content[i], i, filmed) for i in own])
        file = root / TEMPLATES[version][0].format(**place)
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, file, row_group_size=16)
        if filmed:
            frames = [frame for i in own for frame in content[i]["pixels"]]
            write_video(root / TEMPLATES[version][1].format(video_key=CAMERA, **place), frames)
        begins = 0.0
        for i in own:
            listed.append(_episode(i, len(content[i]["action"]), begins, place))
            begins += len(content[i]["action"]) / FPS
    _write_meta(root, version, listed, filmed)
    return root


def _place(version: str, number: int) -> dict[str, int]:
    if version == "v2.1":
        return {"episode_chunk": 0, "episode_index": number}
    return {"chunk_index": 0, "file_index": number}


def _episode(index: int, length: int, begins: float, place: dict[str, int]) -> dict[str, Any]:
    row: dict[str, Any] = {"episode_index": index, "tasks": ["walk"], "length": length}
    if "file_index" in place:
        for where in ("data", f"videos/{CAMERA}"):
            row |= {f"{where}/{name}": value for name, value in place.items()}
        ends = begins + length / FPS
        row |= {f"videos/{CAMERA}/from_timestamp": begins, f"videos/{CAMERA}/to_timestamp": ends}
    return row


def _rows(episode: Episode, index: int, filmed: bool) -> pa.Table:
    length = len(episode["action"])
    pair = pa.list_(pa.float32(), 2)
    columns = {
        "action": pa.array([*map(list, episode["action"])], pair),
        "observation.state": pa.array([*map(list, episode["pos_agent"])], pair),
        "timestamp": pa.array(np.arange(length, dtype=np.float32) / FPS),
        "frame_index": pa.array(np.arange(length)),
        "episode_index": pa.array(np.full(length, index)),
    }
    if not filmed:
        columns[CAMERA] = pa.array([{"bytes": _png(one), "path": ""} for one in episode["pixels"]])
    return pa.table(columns)


def _png(frame: np.ndarray) -> bytes:
    content = io.BytesIO()
    Image.fromarray(frame).save(content, "PNG")
    return content.getvalue()


def _write_meta(root: Path, version: str, listed: list[dict[str, Any]], filmed: bool) -> None:
    pair = {"dtype": "float32", "shape": [2], "names": None}
    one = {"dtype": "int64", "shape": [1], "names": None}
    camera = {"dtype": "video" if filmed else "image", "shape": [SIDE, SIDE, 3], "names": None}
    features = {
        "action": pair, "observation.state": pair, "timestamp": one | {"dtype": "float32"},
        "frame_index": one, "episode_index": one, CAMERA: camera,
    }  # fmt: skip
    data, video = TEMPLATES[version]
    info = {
        "codebase_version": version, "fps": FPS, "chunks_size": 1000, "data_path": data,
        "video_path": video, "total_episodes": len(listed), "features": features,
    }  # fmt: skip
    (root / "meta").mkdir(parents=True)
    (root / "meta/info.json").write_text(json.dumps(info))
    if version == "v2.1":
        lines = "".join(f"{json.dumps(row)}\n" for row in listed)
        (root / "meta/episodes.jsonl").write_text(lines)
        return
    file = root / "meta/episodes/chunk-000/file-000.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(listed), file)
