"""Draws anchors from a dataset, as the public protocol does."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Float32, Int64

from acpc.contract import (
    AnchorArrays,
    AnchorSample,
    AnchorSource,
    ArgumentError,
    FailedPrecondition,
    Reading,
    check,
    nearest,
)
from acpc.datasets.columns import Dataset, DatasetColumn
from acpc.datasets.normalisers import MEASURED, NormalisedColumn, Normaliser, StatisticsCache
from acpc.datasets.tasks import TaskPreset, load_preset, median_split_labels, preset_names
from acpc.datasets.windows import TorchOrder, WindowIndex, chosen_episodes


@dataclass(frozen=True)
class DrawnFrames:
    """The frames of drawn anchors, read when a slice of them is asked for.

    ``on_read`` is called after each read with the anchors whose frames were read, and all anchors.
    """

    column: DatasetColumn  # of the dataset
    rows: Int64[np.ndarray, "n steps"]  # of each anchor's history and future frames in it
    on_read: Callable[[int, int], object] = lambda done, total: None
    dtype: ClassVar = np.dtype(np.uint8)

    @property
    def shape(self) -> tuple[int, ...]:
        """(anchors, history + horizon, height, width, 3)."""
        return *self.rows.shape, *self.column.shape[1:]

    def __getitem__(self, part: slice, /) -> np.ndarray:
        """The frames of consecutive anchors; FailedPrecondition names a row that is damaged."""
        frames = self.column.gather(self.rows[part])
        self.on_read(part.indices(len(self.rows))[1], len(self.rows))
        return frames


@dataclass(frozen=True)
class DrawnWindows:
    """Anchors that ``draw_windows`` chose. Usable as long as their dataset is open.

    Of the window that each was drawn from, ``window_blocks`` are the normalised blocks that leave
    all frames, (n, h + F, block width).
    """

    anchors: AnchorArrays  # identities are the windows' indices, trajectories the episodes
    frames: DrawnFrames
    window_blocks: Float32[np.ndarray, "n window block_width"]
    windows: int | None  # that the anchors are a simple random sample of; None where they are not


def draw_windows(
    dataset: Dataset,
    task: TaskPreset,
    source: AnchorSource,
    *,
    history: int,
    horizon: int,
    every_endpoint: bool = False,
    statistics: StatisticsCache | None = None,
) -> DrawnWindows:
    """Draws anchors and reads all of them but the frames.

    The anchors are the first n of ``torch.randperm`` over all windows (``AnchorSample`` says what
    else they can be) of ``history + source.window_future_frames`` kept frames, ``history +
    horizon`` unless the source says more; an anchor's identity is its window's index in
    episode-major order among the episodes chosen, its trajectory the episode's.
    The first ``history + horizon`` frames are kept. The endpoint state is the logged state at the
    last of them (the paper's eighth future frame), standardised over the whole dataset, and its
    label splits the task's features at their median over these anchors, strictly above
    (Tab. sr-labels in the paper). With ``every_endpoint`` states and labels are those of every
    future frame, unless one before the last is not finite.

    Raises ArgumentError: A number out of range, windows that are too short, or fewer windows (or
    episodes) than ``count``; FailedPrecondition: A column that is missing or cannot be used, or a
    state that is not finite.
    """
    check(source)
    for field, value in (("history", history), ("horizon", horizon)):
        if value < 1:
            raise ArgumentError(field, f"is {value}; give at least 1")
    known = statistics or StatisticsCache()
    skip = task.frameskip if source.frameskip is None else source.frameskip
    steps, window_steps = history + horizon, history + window_future_frames(source, horizon)
    lengths = lengths_of(dataset, task, source.episodes)
    windows = WindowIndex(lengths, num_steps=window_steps, frameskip=skip)
    chosen = _draw_windows(windows, source)
    episode, start = windows.locate(chosen)
    first_row = (dataset.offsets[episode] + start)[:, None]  # (n, 1)
    frame_rows = first_row + np.arange(steps) * skip  # (n, h + H)
    frames = DrawnFrames(dataset.pixel_column(task.pixels), frame_rows)
    states = _endpoint_states(dataset, task, frame_rows[:, -1], known)
    action_rows = first_row + np.arange(window_steps * skip)  # (n, (h + F) * frameskip)
    actions, normalise = _normalised(dataset, task, task.action, action_rows, known)
    window_blocks = action_blocks(actions, normalise, frameskip=skip)  # (n, h + F, width)
    labels = median_split_labels(task.label_features(states))
    if every_endpoint:
        with suppress(FailedPrecondition):  # a state before the last is not finite
            each = [_endpoint_states(dataset, task, at, known) for at in frame_rows[:, history:].T]
            splits = [median_split_labels(task.label_features(at)) for at in each]
            states, labels = np.stack(each, axis=1), np.stack(splits, axis=1)
    proprio = None
    if task.proprio is not None:  # as the public library makes it: NaN becomes 0, the mean
        values, normalise = _normalised(dataset, task, task.proprio, frame_rows, known)
        proprio = normalise(values).astype(np.float32)  # (n, steps, width)
    anchors = AnchorArrays(
        history=history,
        frames=frames,
        action_blocks=window_blocks[:, : steps - 1].copy(),
        endpoint_states=states,
        labels=labels,
        anchor_ids=chosen,
        trajectory_ids=episode,
        proprio=proprio,
    )
    return DrawnWindows(anchors, frames, window_blocks, None if source.by_episode else len(windows))


def lengths_of(dataset: Dataset, task: TaskPreset, episodes: str) -> Int64[np.ndarray, "episodes"]:
    """Rows of each episode that windows may be drawn from: those asked for, or of the task.

    Raises as ``chosen_episodes``.
    """
    return np.where(chosen_episodes(dataset, episodes or task.episodes), dataset.lengths, 0)


def window_future_frames(source: AnchorSource, horizon: int) -> int:
    """Future frames of the windows that the source draws from, at least ``horizon``.

    Raises ArgumentError: It asks for fewer.
    """
    return source.with_windows(Reading.PAPER, horizon).window_future_frames or horizon


def _draw_windows(windows: WindowIndex, source: AnchorSource) -> Int64[np.ndarray, "n"]:
    offered = windows.episodes if source.by_episode else len(windows)
    if offered < source.count:
        what = "episodes with a window" if source.by_episode else "windows"
        raise ArgumentError(
            "count",
            f"is {source.count}, but the dataset has only {offered} {what} of {windows.span} "
            "environment steps; ask for fewer anchors, shorter windows or a smaller frameskip",
        )
    random, order = TorchOrder(source.seed), np.empty(0, np.int64)
    if source.sample is AnchorSample.EPISODES:
        return windows.of_random_episodes(source.count, random)
    # The first windows of the permutation over all, or the first of each episode, in order.
    for part in random.permutation(len(windows)):
        order = np.concatenate([order, part])
        if source.one_per_episode:
            _, first = np.unique(windows.locate(order)[0], return_index=True)
            order = order[np.sort(first)]
        if len(order) >= source.count:
            break
    return order[: source.count]


def _endpoint_states(
    dataset: Dataset, task: TaskPreset, rows: Int64[np.ndarray, "n"], known: StatisticsCache
) -> np.ndarray:
    column = dataset.numeric_column(task.state)
    statistics = known.get(dataset, column, ddof=task.state_ddof)
    states = statistics.standardise(_floats(column.gather(rows), len(rows)))  # (n, width)
    bad = np.flatnonzero(~np.isfinite(states).all(axis=1))
    if bad.size:
        raise FailedPrecondition(
            f"dataset {dataset.name!r}, column {task.state!r}: row {rows[bad[0]]}, the endpoint of "
            "an anchor, is not finite"
        )
    return states


def _normalised(
    dataset: Dataset,
    task: TaskPreset,
    spec: NormalisedColumn,
    rows: Int64[np.ndarray, "n rows"],
    known: StatisticsCache,
) -> tuple[np.ndarray, Normaliser]:
    """A column at some rows, (n, rows, width), and what normalises it."""
    column = dataset.numeric_column(spec.column)
    normalise = spec.fitted(dataset, column, ddof=task.action_ddof, known=known)
    return _floats(column.gather(rows), *rows.shape), normalise


def action_variants(
    dataset: Dataset,
    task: TaskPreset,
    episode: Int64[np.ndarray, "n"],
    first_row: Int64[np.ndarray, "n"],
    *,
    blocks: int,
    frameskip: int,
    known: StatisticsCache,
) -> dict[str, Float32[np.ndarray, "n blocks block_width"]]:
    """Blocks of windows with a usual mistake of a dataset or a task undone, by its name.

    ``own`` are those of the task; ``later_actions`` and ``earlier_actions`` begin one row later and
    earlier, within the episode; the others have another normaliser. Raises FailedPrecondition: The
    column cannot be used.
    """
    column, width = dataset.numeric_column(task.action.column), blocks * frameskip
    rows = first_row[:, None] + np.arange(-1, width + 1)
    begin = dataset.offsets[episode][:, None]
    end = begin + dataset.lengths[episode][:, None]
    inside = (rows >= begin) & (rows < end)
    actions = _floats(column.gather(np.clip(rows, begin, end - 1)), *rows.shape)
    actions[~inside] = np.nan

    def blocks_of(start: int, spec: NormalisedColumn) -> np.ndarray:
        normalise = spec.fitted(dataset, column, ddof=task.action_ddof, known=known)
        return action_blocks(actions[:, start : start + width], normalise, frameskip=frameskip)

    starts = {"own": 1, "later_actions": 2, "earlier_actions": 0}
    found = {name: blocks_of(start, task.action) for name, start in starts.items()}
    for name in MEASURED:
        if name != task.action.normaliser:
            with suppress(FailedPrecondition):  # of a column too large for percentiles
                other = NormalisedColumn(column=task.action.column, normaliser=name)
                found[f"{name}_actions"] = blocks_of(1, other)
    return found


def _floats(values: np.ndarray, *leading: int) -> np.ndarray:
    floats: np.ndarray = values.reshape(*leading, -1).astype(np.float64)
    return floats


def action_blocks(
    actions: Float[np.ndarray, "n rows width"], normalise: Normaliser, *, frameskip: int
) -> Float32[np.ndarray, "n blocks block_width"]:
    """Normalises actions per coordinate and joins ``frameskip`` consecutive ones into a block.

    Block k holds the actions that leave kept frame k, so a window of h + H frames gives h + H - 1
    blocks. NaN, which files hold at the end of an episode, becomes 0 after normalising: the mean
    action. Blocks are step-major.

    Raises ArgumentError: ``rows`` is not a multiple of ``frameskip``.
    """
    n, rows, width = actions.shape
    if rows % frameskip:
        raise ArgumentError("frameskip", f"is {frameskip}, which does not divide {rows} actions")
    blocks: np.ndarray = normalise(actions).reshape(n, rows // frameskip, frameskip * width)
    return blocks.astype(np.float32)  # (n, blocks, frameskip * width)


def action_width(dataset: Dataset, task: TaskPreset) -> int:
    """The width of actions, once a dataset has every column of a task."""
    dataset.pixel_column(task.pixels)
    task.check_state_width(dataset.numeric_column(task.state).width)
    return dataset.numeric_column(task.action.column).width


def misfit(dataset: Dataset, task: str, error: FailedPrecondition) -> FailedPrecondition:
    """The error of a dataset that a task does not fit, with the presets that would, if any do."""

    def fits(preset: str) -> bool:
        with suppress(FailedPrecondition):
            return action_width(dataset, load_preset(preset)) > 0
        return False

    others = [name for name in preset_names() if name != task and fits(name)]
    if not others:
        return error
    fit = " and ".join(map(repr, nearest(task, others, like=0.0)))
    problem = f"task {task!r} does not fit this file, but {fit} would: {error.message}"
    return FailedPrecondition(problem, reason=error.reason)
