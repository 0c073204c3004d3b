"""Opens datasets and task files that callers name below one root folder."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from acpc.contract import AnchorSource, DatasetFile, Reading, TaskSummary
from acpc.datasets import (
    HDF5_SUFFIXES,
    LANCE_SUFFIX,
    MAX_TASK_BYTES,
    DrawnWindows,
    StatisticsCache,
    TaskPreset,
    WindowIndex,
    action_width,
    draw_windows,
    lengths_of,
    load_preset,
    misfit,
    parse_task,
    preset_names,
    recognise,
    unread,
    window_future_frames,
)
from acpc.datasets.hdf5 import Hdf5Dataset

from acpc_server.data.dataset_anchors import FileAnchors
from acpc_server.errors import FailedPrecondition, InvalidArgument, PermissionDenied, UnknownName
from acpc_server.numerics import Check, go_on
from acpc_server.opening import FOLDER, open_below, path_of

# How the names of files end that are listed.
SUFFIXES = {"dataset": HDF5_SUFFIXES, "task": (".yaml", ".yml", ".json")}
MAX_DEPTH = 8
MAX_ENTRIES = 100_000  # files and folders that one listing looks at

ANCHOR_BYTES = 2**28
"""Frames of one anchor as recorded, 256 MiB: they are read together, since their sha256 covers all.
Of 224 pixels eleven are 1.6 MiB."""


def files_below(root: Path, field: str) -> Iterator[str]:
    """Yield regular files below ``root`` named as datasets or tasks are, following no links.

    Of datasets also the folders that are Lance tables; what is in them is none.
    At most ``MAX_DEPTH`` folders deep, and of a huge tree the first ``MAX_ENTRIES`` only.
    """
    left = MAX_ENTRIES
    for path, folders, files in os.walk(root):
        relative = Path(path).relative_to(root)
        folders.sort()
        for folder in [name for name in folders if field == "dataset"]:
            if folder.endswith(LANCE_SUFFIX) and not (Path(path) / folder).is_symlink():
                folders.remove(folder)
                yield (relative / folder).as_posix()
        if len(relative.parts) >= MAX_DEPTH:
            folders.clear()
        for file in sorted(files):
            left -= 1
            if file.endswith(SUFFIXES[field]):
                with suppress(OSError):  # gone meanwhile
                    if stat.S_ISREG((Path(path) / file).lstat().st_mode):
                        yield (relative / file).as_posix()
        left -= len(folders)
        if left < 0:
            return


@contextmanager
def open_file(root: Path, name: str, *, field: str) -> Iterator[int]:
    """Open the regular file ``name`` below ``root`` inside the ``with``; yield its descriptor.

    The root itself may be a link, for it is the operator's; nothing below it may be. Raises
    InvalidArgument: ``name`` is empty or holds a NUL or a backslash; PermissionDenied: ``name`` is
    absolute, has a ``.`` or ``..`` part, or passes a link; UnknownName: There is no such file;
    FailedPrecondition: It is not a regular file; of a dataset in another format, with reason
    DATASET_FORMAT and what to do.
    """
    descriptor = _opened(root, name, field)
    try:
        mode = os.fstat(descriptor).st_mode
        if field == "dataset" and stat.S_ISDIR(mode):
            words = unread(name)
            if recognise(root / name) == "lance":
                words = (
                    f"{name!r} is a Lance table, and a server reads HDF5 alone; where it lies, "
                    f"`acpc anchors upload {name} --task TASK` makes an anchor set of it, which "
                    "requests take instead"
                )
            raise FailedPrecondition(f"dataset {words}", reason="DATASET_FORMAT")
        if not stat.S_ISREG(mode):
            raise FailedPrecondition(f"{field} {name!r} is not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def _opened(root: Path, name: str, field: str) -> int:
    if not name or "\0" in name or "\\" in name:
        raise InvalidArgument(field, f"is {name!r}; give a file path relative to the server's root")
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts):  # an absolute path has an empty part
        raise PermissionDenied(
            f"{field} {name!r} must be a plain relative path, without '.', '..' or empty parts"
        )
    try:
        folder = os.open(root, FOLDER)
        try:
            return open_below(folder, parts)
        finally:
            os.close(folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnknownName(
            f"{field} {name!r} does not exist",
            name,
            lambda: files_below(root, field),
            f"acpc list {field}s",
        ) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            link = f"{field} {name!r} passes the symbolic link {error.filename!r}"
            raise PermissionDenied(link) from error
        raise FailedPrecondition(f"{field} {name!r} cannot be read: {error.strerror}") from error


@contextmanager
def open_dataset(root: Path, name: str, check: Check = go_on) -> Iterator[Hdf5Dataset]:
    """Open the dataset ``name`` below ``root`` for reading, inside the ``with``.

    ``check`` is called before every read of rows and may raise to end them. Raises as
    ``open_file``, and FailedPrecondition for a file that is no HDF5 dataset of episodes.
    """
    with (
        open_file(root, name, field="dataset") as file,
        # The descriptor's file: the name may lead to another by now.
        Hdf5Dataset.open(path_of(file), name, check) as dataset,
    ):
        yield dataset


def load_task(name: str, root: Path) -> TaskPreset:
    """Read a shipped preset by its name, or a task file below the dataset root.

    UnknownName: neither; otherwise raises as ``open_file``, field ``task``, and
    FailedPrecondition, which names the key, for a file that is no task.
    """
    if name in preset_names():
        return load_preset(name)
    if not name.endswith(SUFFIXES["task"]):
        raise UnknownName(
            f"no task preset {name!r}, and no task file, whose name ends in one of "
            f"{', '.join(SUFFIXES['task'])}",
            name,
            lambda: (*preset_names(), *files_below(root, "task")),
            "acpc list tasks",
        )
    with open_file(root, name, field="task") as opened, open(opened, "rb", closefd=False) as file:
        return parse_task(name, file.read(MAX_TASK_BYTES + 1))


@dataclass(frozen=True)
class DatasetFit:
    """What a dataset offers a task: how many anchors can be drawn, and of what form."""

    anchors: int
    frameskip: int
    action_dim: int
    proprio_dim: int


class DatasetStore:
    """Opens datasets and task files below ``root``, afresh in each call."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._statistics = StatisticsCache()

    def reading(self, task: str) -> Reading:
        """Return the task's reading, for requests without one; raises as ``load_task``."""
        return load_task(task, self._root).reading

    def fit(self, source: AnchorSource, *, history: int, horizon: int) -> DatasetFit:
        """Check, without reading rows, that a dataset has what its task needs.

        Raises as ``open_dataset``, its columns, ``load_task``, ``chosen_episodes`` and
        ``WindowIndex``.
        """
        steps = history + window_future_frames(source, horizon)
        with self._opened(source, history + horizon) as (file, preset):
            skip = preset.frameskip if source.frameskip is None else source.frameskip
            proprio = file.numeric_column(preset.proprio.column).width if preset.proprio else 0
            lengths = lengths_of(file, preset, source.episodes)
            windows = WindowIndex(lengths, num_steps=steps, frameskip=skip)
            offered = windows.episodes if source.by_episode else len(windows)
            return DatasetFit(offered, skip, action_width(file, preset), proprio)

    def datasets(self) -> list[DatasetFile]:
        """List every dataset below the root, unopened, by name."""
        found = []
        for name in sorted(files_below(self._root, "dataset")):
            path, size = self._root / name, 0
            with suppress(OSError):  # gone meanwhile
                size = 0 if path.is_dir() else path.lstat().st_size
            found.append(DatasetFile(name, size, recognise(path)))
        return found

    def tasks(self) -> list[TaskSummary]:
        """List the presets, then the task files below the root, unopened, by name."""
        presets = [load_task(name, self._root).summary() for name in preset_names()]
        return presets + [TaskSummary(name) for name in sorted(files_below(self._root, "task"))]

    @contextmanager
    def _opened(
        self, source: AnchorSource, steps: int, check: Check = go_on
    ) -> Iterator[tuple[Hdf5Dataset, TaskPreset]]:
        """Open a dataset that has every column of its task; ``steps`` are an anchor's frames.

        Raises as ``open_dataset`` and ``load_task``; FailedPrecondition names presets that fit;
        InvalidArgument: One anchor's frames are more than may be held.
        """
        preset = load_task(source.task, self._root)
        with open_dataset(self._root, source.dataset, check) as file:
            try:
                action_width(file, preset)
            except FailedPrecondition as error:
                raise misfit(file, source.task, error) from error
            height, width = file.pixel_column(preset.pixels).shape[1:3]
            if (needed := steps * 3 * height * width) > ANCHOR_BYTES:
                raise InvalidArgument(
                    "dataset",
                    f"the {steps} frames of an anchor, {height} x {width} pixels, are {needed} "
                    f"bytes, over the limit of {ANCHOR_BYTES}; store smaller frames, or ask for a "
                    "shorter horizon",
                    reason="ANCHOR_TOO_LARGE",
                )
            yield file, preset

    @contextmanager
    def drawn(
        self,
        source: AnchorSource,
        *,
        history: int,
        horizon: int,
        every_endpoint: bool = False,
        check: Check = go_on,
    ) -> Iterator[DrawnWindows]:
        """Draw anchors as ``draw_windows`` does; their dataset is open inside the ``with``.

        ``check`` is called between reads of the dataset and may raise to end them. Raises as
        :meth:`fit` and ``draw_windows``.
        """
        with self._opened(source, history + horizon, check) as (file, preset):
            yield draw_windows(
                file,
                preset,
                source,
                history=history,
                horizon=horizon,
                every_endpoint=every_endpoint,
                statistics=self._statistics,
            )

    def anchors(
        self,
        source: AnchorSource,
        *,
        history: int,
        horizon: int,
        frame_digests: bytes = b"",
        check: Check = go_on,
    ) -> FileAnchors:
        """Draw anchors that outlive the opening of their file; raises as :meth:`drawn`.

        ``check`` is called between reads. Known ``frame_digests`` of the first anchors, joined,
        save reading their frames.
        """
        with self.drawn(source, history=history, horizon=horizon) as drawn:
            reopen = partial(open_dataset, self._root, source.dataset)
            stamp = partial(self.stamp, source.dataset, source.task)
            task = load_task(source.task, self._root)
            if source.episodes:
                task = task.model_copy(update={"episodes": source.episodes})
            return FileAnchors(drawn, task, self._statistics, reopen, stamp, frame_digests, check)

    def stamp(self, dataset: str, task: str) -> str:
        """Return what changes when the dataset or task file is replaced or written to.

        Unchanged when their volume is mounted again, so that a job can go on at another host.
        """
        named = {"dataset": dataset} | ({} if task in preset_names() else {"task": task})
        states = []
        for field, name in named.items():
            with open_file(self._root, name, field=field) as file:
                states.append(os.fstat(file))
        return ",".join(f"{s.st_ino}-{s.st_size}-{s.st_mtime_ns}" for s in states)
