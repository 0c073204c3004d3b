"""Anchors of a dataset that lies here, as the server would draw them from the same data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from acpc.arrays import NDArray
from acpc.contract import did_you_mean
from acpc.datasets import (
    FORMATS,
    MAX_TASK_BYTES,
    Dataset,
    Normaliser,
    StatisticsCache,
    TaskPreset,
    action_blocks,
    draw_windows,
    load_preset,
    misfit,
    parse_task,
    preset_names,
    recognise,
    unread,
)
from acpc_client import AnchorArrays, DatasetAnchors, Reading
from acpc_client.errors import ArgumentError, FailedPrecondition

from acpc_lab.extras import load

OnRead = Callable[[int, int], object]


@contextmanager
def drawn_from(
    path: str | Path,
    source: DatasetAnchors,
    *,
    format: str = "",
    history: int = 3,
    horizon: int = 8,
    reading: Reading | None = None,
    on_read: OnRead = lambda done, total: None,
) -> Iterator[AnchorArrays]:
    """Draws anchors of the dataset at ``path``, to upload inside the ``with``.

    A server draws the same ones from the same data as HDF5 with the same ``source``,
    ``history``, ``horizon`` and ``reading``; numbers are equal, and frames where the format keeps
    them without loss.

    Args:
        path: An HDF5 file or a Lance table, as stable-worldmodel writes them.
        source: How anchors are drawn; its task is a preset, or a task file here.
        format: One of ``acpc.datasets.FORMATS``; empty: recognised by the files.
        history: Frames of history.
        horizon: Future frames H.
        reading: Which windows the draw is over; None: as the task says.
        on_read: Called after each read with the anchors whose frames were read, and all anchors.

    Raises ArgumentError: No such format or task, or too few windows; FailedPrecondition: The
    dataset is damaged or lacks a column, or its format needs a library that is not installed; the
    message says what to install.
    """
    with open_dataset(Path(path), format) as dataset:
        task = read_task(source.task)
        wanted = source.resolved().with_windows(reading or task.reading, horizon)
        try:
            drawn = draw_windows(
                dataset, task, wanted, history=history, horizon=horizon, every_endpoint=True
            )
        except FailedPrecondition as error:
            raise misfit(dataset, source.task, error) from error
        yield replace(drawn.anchors, frames=replace(drawn.frames, on_read=on_read))


@dataclass(frozen=True)
class ActionScale:
    """How actions become what a checkpoint takes: normalised, and joined to blocks.

    Attributes:
        normaliser: Of each coordinate of an action over the dataset.
        frameskip: Actions in a block.
    """

    normaliser: Normaliser
    frameskip: int

    def blocks(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Actions (..., blocks * frameskip, width) as blocks (..., blocks, frameskip * width)."""
        *batch, rows, width = np.shape(actions)
        flat = np.reshape(actions, (-1, rows, width))
        made = action_blocks(flat, self.normaliser, frameskip=self.frameskip)
        return made.reshape(*batch, *made.shape[1:])

    def actions(self, blocks: NDArray[Any]) -> NDArray[np.float64]:
        """Blocks, as a planner finds them, as actions in the units of the dataset."""
        *batch, steps, width = np.shape(blocks)
        made: NDArray[np.float64] = np.reshape(
            blocks, (*batch, steps * self.frameskip, width // self.frameskip)
        ).astype(np.float64)
        scale = self.normaliser.statistics
        return made if scale is None else made * scale.std + scale.mean


def action_scale(path: str | Path, task: str, *, frameskip: int | None = None) -> ActionScale:
    """Reads how the actions of a dataset here are normalised, as training and server do it.

    ``task`` is a preset or a task file; ``frameskip`` is its own unless given. Reads the column of
    actions once. Raises as :func:`drawn_from`.
    """
    found = read_task(task)
    with open_dataset(Path(path)) as dataset:
        column = dataset.numeric_column(found.action.column)
        known = found.action.fitted(
            dataset, column, ddof=found.action_ddof, known=StatisticsCache()
        )
    return ActionScale(known, frameskip or found.frameskip)


def read_task(name: str) -> TaskPreset:
    """A shipped preset, or a task file here.

    Raises ArgumentError: Neither; FailedPrecondition: The file is no task; names the key.
    """
    if name in preset_names():
        return load_preset(name)
    try:
        with Path(name).open("rb") as file:
            return parse_task(name, file.read(MAX_TASK_BYTES + 1))
    except OSError as error:
        guess = did_you_mean(name, preset_names())
        known = f"presets: {', '.join(preset_names())}"
        found = f"{name!r} is no preset, and no file: {error.strerror}"
        raise ArgumentError("task", "; ".join(filter(None, [found, guess, known]))) from error


def open_dataset(path: Path, format: str = "") -> AbstractContextManager[Dataset]:
    """The dataset at ``path``, to read inside the ``with``; raises as :func:`drawn_from`."""
    if not format and not (format := recognise(path)):
        raise FailedPrecondition(f"dataset {unread(path.name)}", reason="DATASET_FORMAT")
    if format == "hdf5":
        load("hdf5plugin", "hdf5")
        hdf5: Any = load("acpc.datasets.hdf5", "hdf5")
        return hdf5.Hdf5Dataset.open(path, path.name)  # type: ignore[no-any-return]
    if format == "lance":
        from acpc_lab.datasets.lance import LanceDataset  # noqa: PLC0415 - loads the library

        return nullcontext(LanceDataset(path))
    raise ArgumentError("format", f"found {format!r}; wanted one of {', '.join(FORMATS)}")
