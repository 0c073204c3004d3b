"""Frames of a video by index or time, exactly, whatever its codec reorders."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from acpc.contract import load_optional
from acpc.datasets import MAX_FRAME_SIDE
from acpc.extras import install_line
from numpy.typing import NDArray

from acpc_lab.datasets.tables import Damaged


class VideoFile:
    """One video, whose index is read when it is made; no frame is kept.

    Args:
        source: A file, or the content of one.

    Raises Damaged: It cannot be read, is cut off, or holds no video; FailedPrecondition: PyAV is
    not installed; the message says how to install it.
    """

    def __init__(self, source: Path | bytes) -> None:
        self._av: Any = load_optional("av", install_line("video"))
        self._source = source
        with self._opened() as (container, stream):
            if max(stream.width, stream.height) > MAX_FRAME_SIDE:
                raise Damaged(f"is a video with a side over {MAX_FRAME_SIDE} pixels")
            packets = [p for p in container.demux(stream) if p.pts is not None]
            self._base = stream.time_base
        if not packets:
            raise Damaged("is in a video without a frame")
        self._times = np.unique([p.pts for p in packets])
        self._keys = np.unique([p.pts for p in packets if p.is_keyframe] or [0])

    def __len__(self) -> int:
        return len(self._times)

    def nearest(self, seconds: NDArray[np.float64], within: float) -> NDArray[np.int64]:
        """Indices of the frames shown nearest to these times.

        Raises Damaged: There is none ``within`` so many seconds of one of them.
        """
        shown = self._times * float(self._base)
        found = np.searchsorted((shown[1:] + shown[:-1]) / 2, seconds)
        far = np.flatnonzero(~(np.abs(shown[found] - seconds) <= within))  # also those that are NaN
        if far.size:
            raise Damaged(f"has no frame at {seconds[far[0]]:.3f} s of the video")
        return found.astype(np.int64)

    def frames(self, indices: NDArray[np.int64]) -> Iterator[NDArray[np.uint8]]:
        """The RGB frames of these ascending indices.

        Raises Damaged: There is no such frame, or the video is damaged before it.
        """
        if indices[-1] >= len(self):
            raise Damaged(f"is frame {indices[-1]} of a video that has {len(self)}")
        wanted = self._times[indices]
        key = np.maximum(np.searchsorted(self._keys, wanted, side="right") - 1, 0)
        with self._opened() as (container, stream):
            for group in np.split(wanted, np.flatnonzero(np.diff(key)) + 1):
                container.seek(int(group[0]), stream=stream)
                yield from self._decoded(container, stream, iter(group.tolist()))

    def _decoded(
        self,
        container: Any,  # noqa: ANN401 - of PyAV
        stream: Any,  # noqa: ANN401
        wanted: Iterator[int],
    ) -> Iterator[NDArray[np.uint8]]:
        time = next(wanted)
        for frame in container.decode(stream):
            if frame.pts is None or frame.pts < time:
                continue
            if frame.pts > time:
                break
            yield frame.to_ndarray(format="rgb24")
            following = next(wanted, None)
            if following is None:
                return
            time = following
        raise Damaged("cannot be decoded: the video is damaged or cut off before it")

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        source = self._source
        opened = io.BytesIO(source) if isinstance(source, bytes) else str(source)
        try:
            with self._av.open(opened) as container:
                if not container.streams.video:
                    raise Damaged("is in a file without video")
                yield container, container.streams.video[0]
        except self._av.FFmpegError as error:
            named = "" if isinstance(source, bytes) else f" {source.name!r}"
            raise Damaged(f"is in a video{named} that cannot be read: {error}") from error
