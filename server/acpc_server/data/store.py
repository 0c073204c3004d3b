"""The datasets and task files below one root."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from acpc_server.data.anchors import AnchorBatch, select_anchors
from acpc_server.data.hdf5 import Hdf5Dataset
from acpc_server.data.paths import resolve_below
from acpc_server.data.tasks import load_task, preset_names
from acpc_server.data.windows import WindowIndex


@dataclass(frozen=True)
class DatasetFit:
    """What a dataset read as a task offers.

    Attributes:
        windows: Windows of the asked length.
        frameskip: Environment steps between kept frames.
        action_dim: Width of one action.
    """

    windows: int
    frameskip: int
    action_dim: int


class DatasetStore:
    """Opens datasets for every caller.

    Args:
        root: Folder that holds HDF5 files and task files.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def fit(self, dataset: str, task: str, *, steps: int, frameskip: int | None) -> DatasetFit:
        """Check, without reading rows, that a dataset has what a task needs.

        Args:
            dataset: File below the root.
            task: Preset name or task file.
            steps: Frames of a window, history and future.
            frameskip: Overrides the task's.

        Raises:
            InvalidArgument, PermissionDenied, NotFound, FailedPrecondition: The dataset, the task
                or a column cannot be used; fields ``dataset`` and ``task``.
        """
        preset = load_task(task, self._root)
        skip = frameskip or preset.frameskip
        with Hdf5Dataset.open(self._root, dataset) as file:
            file.pixel_column(preset.pixels)
            file.numeric_column(preset.state)
            shape = file.numeric_column(preset.action).shape
            windows = len(WindowIndex(file.lengths, num_steps=steps, frameskip=skip))
        return DatasetFit(windows, skip, shape[1] if len(shape) == 2 else 1)

    def anchors(
        self,
        dataset: str,
        task: str,
        *,
        history: int,
        horizon: int,
        count: int,
        seed: int,
        frameskip: int | None,
    ) -> AnchorBatch:
        """Draw anchors; see :func:`select_anchors`."""
        preset = load_task(task, self._root)
        with Hdf5Dataset.open(self._root, dataset) as file:
            return select_anchors(
                file,
                preset,
                history=history,
                horizon=horizon,
                count=count,
                seed=seed,
                frameskip=frameskip,
            )

    def stamp(self, dataset: str, task: str) -> str:
        """Changes whenever the dataset file or the task file does."""
        files = [resolve_below(self._root, dataset, field="dataset")]
        if task not in preset_names():
            files.append(resolve_below(self._root, task, field="task"))
        stats = [path.stat() for path in files]
        return ":".join(f"{s.st_ino}.{s.st_size}.{s.st_mtime_ns}" for s in stats)
