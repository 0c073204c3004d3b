"""Drawing anchors from a dataset, as the public protocol does."""

import numpy as np
import torch
from jaxtyping import Int64

from acpc_server.data.anchors import AnchorBatch
from acpc_server.data.blocks import action_blocks
from acpc_server.data.drawn import DrawnAnchors
from acpc_server.data.hdf5 import Hdf5Dataset
from acpc_server.data.statistics import StatisticsCache
from acpc_server.data.tasks import TaskPreset
from acpc_server.data.windows import WindowIndex
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.numerics import median_split_labels

ANCHOR_COUNT = 100
ANCHOR_SEED = 9101


def select_anchors(
    dataset: Hdf5Dataset,
    task: TaskPreset,
    *,
    history: int,
    horizon: int,
    count: int = ANCHOR_COUNT,
    seed: int = ANCHOR_SEED,
    frameskip: int | None = None,
    one_per_episode: bool = False,
) -> AnchorBatch:
    """Draws anchors as ``draw_anchors`` does, and reads their frames.

    Raises:
        InvalidArgument, FailedPrecondition: As ``draw_anchors``.
        ResourceExhausted: The frames would not fit the limit of a batch.
    """
    return draw_anchors(
        dataset,
        task,
        history=history,
        horizon=horizon,
        count=count,
        seed=seed,
        frameskip=frameskip,
        one_per_episode=one_per_episode,
    ).batch()


def draw_anchors(
    dataset: Hdf5Dataset,
    task: TaskPreset,
    *,
    history: int,
    horizon: int,
    count: int = ANCHOR_COUNT,
    seed: int = ANCHOR_SEED,
    frameskip: int | None = None,
    one_per_episode: bool = False,
    statistics: StatisticsCache | None = None,
) -> DrawnAnchors:
    """Draws anchors and reads all of them but the frames.

    The anchors are the first ``count`` of ``torch.randperm`` over all windows of
    ``history + horizon`` kept frames; an anchor's identity is its window's index in episode-major
    order, its trajectory the episode's. The endpoint state is the logged state at the last future
    frame (the paper's eighth), standardised over the whole dataset, and its label splits the task's
    features at their median over these anchors, strictly above (Tab. sr-labels in the paper).

    Args:
        dataset: The open dataset.
        task: Its columns and label rules.
        history: Frames of history h.
        horizon: Future frames H.
        count: Anchors n; the paper uses 100.
        seed: Seed of the permutation; the paper uses 9101.
        frameskip: Environment steps between kept frames; the task's when omitted.
        one_per_episode: Keep only the first window of the permutation in each episode, as planner
            and drift studies do.
        statistics: Remembers the statistics of columns from one call to the next.

    Raises:
        InvalidArgument: A number out of range, or fewer windows (or episodes) than ``count``.
        FailedPrecondition: A column that is missing or cannot be used, or a state that is not
            finite.
    """
    for field, value in (("history", history), ("horizon", horizon), ("count", count)):
        if value < 1:
            raise InvalidArgument(field, f"is {value}; give at least 1")
    known = statistics or StatisticsCache()
    skip = task.frameskip if frameskip is None else frameskip
    steps = history + horizon
    windows = WindowIndex(dataset.lengths, num_steps=steps, frameskip=skip)
    chosen = _draw_windows(windows, count, seed, one_per_episode)
    pixels = dataset.pixel_column(task.pixels)
    episode, start = windows.locate(chosen)
    first_row = (dataset.offsets[episode] + start)[:, None]  # (n, 1)
    frame_rows = first_row + np.arange(steps) * skip  # (n, h + H)
    states = _endpoint_states(dataset, task, frame_rows[:, -1], known)
    action_rows = first_row + np.arange((steps - 1) * skip)  # (n, (h + H - 1) * frameskip)
    features = torch.from_numpy(task.label_features(states))
    return DrawnAnchors(
        history=history,
        pixels=pixels,
        frame_rows=frame_rows,
        action_blocks=_blocks(dataset, task, action_rows, skip, known),
        endpoint_states=states,
        labels=median_split_labels(features).numpy(),
        anchor_ids=chosen,
        trajectory_ids=episode,
    )


def _draw_windows(
    windows: WindowIndex, count: int, seed: int, one_per_episode: bool
) -> Int64[np.ndarray, "n"]:
    if not 0 <= seed < 2**64:
        raise InvalidArgument("seed", f"is {seed}; give an integer from 0 to 2**64 - 1")
    generator = torch.Generator().manual_seed(seed)
    order: np.ndarray = torch.randperm(len(windows), generator=generator).numpy()
    if one_per_episode:
        _, first = np.unique(windows.locate(order)[0], return_index=True)
        order = order[np.sort(first)]
    if len(order) < count:
        what = "episodes with a window" if one_per_episode else "windows"
        raise InvalidArgument(
            "count",
            f"is {count}, but the dataset has only {len(order)} {what} of {windows.span} "
            "environment steps; ask for fewer anchors, a shorter horizon or a smaller frameskip",
        )
    return order[:count].copy()  # lets go of the permutation of all windows


def _endpoint_states(
    dataset: Hdf5Dataset, task: TaskPreset, rows: Int64[np.ndarray, "n"], known: StatisticsCache
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


def _blocks(
    dataset: Hdf5Dataset,
    task: TaskPreset,
    rows: Int64[np.ndarray, "n rows"],
    frameskip: int,
    known: StatisticsCache,
) -> np.ndarray:
    column = dataset.numeric_column(task.action)
    statistics = known.get(dataset, column, ddof=task.action_ddof)
    actions = _floats(column.gather(rows), *rows.shape)  # (n, rows, width)
    return action_blocks(actions, statistics, frameskip=frameskip)


def _floats(values: np.ndarray, *leading: int) -> np.ndarray:
    floats: np.ndarray = values.reshape(*leading, -1).astype(np.float64)
    return floats
