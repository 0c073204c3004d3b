"""Anchors drawn from a dataset: while it is open, and reopened for every read and checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
from acpc.contract import frame_digests
from acpc.datasets import Dataset, DrawnWindows, StatisticsCache, TaskPreset, action_variants
from jaxtyping import Float32

from acpc_server.data.anchors import DIGEST_BYTES, FRAMES, Anchors, cuts
from acpc_server.errors import FailedPrecondition

# Frames that are held when there are no more of them: opening the file and reading it row by row
# takes the interpreter away from calls that are served meanwhile. The paper's 100 anchors of 11
# frames of 224 pixels are 158 MiB.
HELD_BYTES = 2**28


class FileAnchors(Anchors):
    """Anchors that outlive the opening of their file. Of many, they hold all but the frames.

    ``stamp`` changes when the file does. ``known`` are the sha256 of the frames of the first
    anchors, joined; those of the others are read once, and ``check`` is called between the reads.
    """

    def __init__(
        self,
        drawn: DrawnWindows,
        task: TaskPreset,
        statistics: StatisticsCache,
        reopen: Callable[[], AbstractContextManager[Dataset]],
        stamp: Callable[[], str],
        known: bytes,
        check: Callable[[], None],
    ) -> None:
        super().__init__(drawn.anchors)
        del self._large[FRAMES]  # of a dataset that is about to be closed
        self.window_blocks, self.windows = drawn.window_blocks, drawn.windows
        self._rows, self._column = drawn.frames.rows, drawn.frames.column.name
        self._task, self._statistics = task, statistics
        self._variants: dict[int, dict[str, np.ndarray]] = {}
        episodes = {"episodes": task.episodes} if task.episodes else {}
        self.read_as = {"action": task.action.model_dump(exclude_none=True), **episodes}
        self._reopen = reopen
        self._stamp = stamp
        self._held: tuple[str, np.ndarray] | None = None  # frames, and the file's stamp
        found = [known]
        one = math.prod(self.forms[FRAMES][1])
        for start, stop in cuts(one, len(known) // DIGEST_BYTES, self.count):
            check()
            found += frame_digests(drawn.frames[start:stop])
        self._digests = b"".join(found)

    def digests(self, name: str) -> bytes:
        """Return the sha256 of each anchor's part of what :meth:`read` gives, joined."""
        return self._digests if name == FRAMES else super().digests(name)

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return frames, history first, or an array beside them, of anchors [start, stop).

        FailedPrecondition: the file now holds other frames, or is damaged; NotFound,
        PermissionDenied: it is gone, or is now a link.
        """
        if name != FRAMES:
            return super().read(name, start, stop)
        if self.count * math.prod(self.forms[FRAMES][1]) > HELD_BYTES:
            return self._read(start, stop)
        stamp = self._stamp()
        if self._held is None or self._held[0] != stamp:
            try:
                # The stamp of before the read, so that a write during it is noticed next time.
                self._held = stamp, self._read(0, self.count)
            except FailedPrecondition:
                return self._read(start, stop)  # these may be unchanged
        return self._held[1][start:stop].copy()

    def action_variants(self, count: int) -> dict[str, Float32[np.ndarray, "m blocks width"]]:
        """Return blocks of the first ``count`` with a usual mistake undone, by its name.

        FailedPrecondition: the file now holds other actions, or is damaged.
        """
        if count in self._variants:
            return self._variants[count]
        rows = self._rows[:count]
        with self._reopen() as dataset:
            found = action_variants(
                dataset,
                self._task,
                self.trajectory_ids[:count],
                rows[:, 0],
                blocks=self.action_blocks.shape[1],
                frameskip=int(rows[0, 1] - rows[0, 0]),
                known=self._statistics,
            )
        if not np.array_equal(found.pop("own"), self.action_blocks[:count]):
            raise self._changed(dataset, "actions")
        self._variants = {count: {**found, **super().action_variants(count)}}
        return self._variants[count]

    def _read(self, start: int, stop: int) -> np.ndarray:
        with self._reopen() as dataset:
            column = dataset.pixel_column(self._column)
            rows = self._rows[start:stop]
            same = column.shape[1:3] == self.frame_size and rows.max(initial=-1) < column.shape[0]
            frames = column.gather(rows) if same else None
        wanted = self._digests[DIGEST_BYTES * start : DIGEST_BYTES * stop]
        if frames is None or b"".join(frame_digests(frames)) != wanted:
            raise self._changed(dataset, "frames")
        return frames

    def _changed(self, dataset: Dataset, what: str) -> FailedPrecondition:
        return FailedPrecondition(
            f"dataset {dataset.name!r} holds other {what} than when its anchors were drawn",
            reason="DATASET_CHANGED",
        )
