"""Proposes a task file for a dataset: what its columns show, and what only its owner knows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from acpc.datasets import Dataset, TaskPreset, WindowIndex, action_width, parse_task
from acpc_client.errors import ArgumentError, FailedPrecondition

HORIZON = 8
"""Future frames of the paper's protocol, for which windows are counted."""


@dataclass(frozen=True)
class FoundColumn:
    """One column: ``frames``, ``numbers``, or ``unusable`` with the reason."""

    name: str
    kind: str
    shape: tuple[int, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class TaskChoice:
    """What the user chose of a task; a field that is None is proposed from the dataset.

    Attributes:
        labels: Coordinates of the state whose median splits make the label.
    """

    name: str
    pixels: str | None = None
    action: str | None = None
    state: str | None = None
    frameskip: int | None = None
    history: int = 3
    labels: tuple[int, ...] | None = None


def columns_of(dataset: Dataset) -> list[FoundColumn]:
    """Every column with its shape, and why one cannot be used."""
    found = []
    for name in dataset.column_names():
        try:
            found.append(FoundColumn(name, "frames", dataset.pixel_column(name).shape))
            continue
        except FailedPrecondition as error:
            no_frames = error.message
        try:
            found.append(FoundColumn(name, "numbers", dataset.numeric_column(name).shape))
        except FailedPrecondition as error:
            why = no_frames if "must hold numbers of shape" in error.message else error.message
            found.append(FoundColumn(name, "unusable", why=why))
    return found


def proposed(
    dataset: Dataset, columns: Sequence[FoundColumn], chosen: TaskChoice
) -> tuple[str, list[str]]:
    """The text of a task file that a server can read this dataset by, and what to know of it.

    A line that is not sure is marked ``CHECK``. Raises ArgumentError: A column is not there, or
    there is none of its kind; names the field; FailedPrecondition: The labels do not fit the state.
    """
    frames = [one.name for one in columns if one.kind == "frames"]
    widths = {one.name: int(np.prod(one.shape[1:])) for one in columns if one.kind == "numbers"}
    pixels, of_pixels = _chosen("pixels", chosen.pixels, frames)
    action, of_action = _chosen("action", chosen.action, [*widths])
    state, of_state = _chosen("state", chosen.state, [name for name in widths if name != action])
    skip, labels = chosen.frameskip or 5, chosen.labels or tuple(range(min(2, widths[state])))
    block = f"{skip} x {widths[action]} = {skip * widths[action]}"
    must = f"frameskip x action width ({block}) must be the checkpoint's action block width"
    asked = "" if chosen.frameskip else "CHECK: the dataset does not say it; 5 is the paper's. "
    split = "" if chosen.labels else "CHECK: proposed; which coordinates make states different? "
    lines = [
        f"name: {json.dumps(chosen.name)}",
        f"pixels: {json.dumps(pixels)}  # frames{of_pixels}",
        f"action: {json.dumps(action)}  # {widths[action]} wide{of_action}",
        f"state: {json.dumps(state)}  # {widths[state]} wide{of_state}",
        f"frameskip: {skip}  # environment steps between kept frames. {asked}{must}",
        f"history: {chosen.history}  # frames of history that the model takes",
        "# proprio: NAME  # column of proprioception, for models whose frames come with it",
        f"labels:  # {split}One bit each: above the median over the anchors",
        f"  - {{rule: coordinates, of: {list(labels)}}}",
    ]
    text = "\n".join(lines) + "\n"
    task = parse_task(chosen.name, text.encode())
    action_width(dataset, task)
    return text, _windows_of(dataset, task)


def _chosen(what: str, given: str | None, names: list[str]) -> tuple[str, str]:
    """The column asked for, the one of that name, or the first; and a comment, if not sure."""
    if not names:
        raise ArgumentError(what, f"no column of the dataset can be the {what}: see its columns")
    if given is not None and given not in names:
        raise ArgumentError(what, f"found {given!r}, wanted one of {', '.join(names)}")
    name = given or (what if what in names else names[0])
    others = ", ".join(json.dumps(other) for other in names if other != name)
    sure = given or not others or (name == what and what != "state")
    return name, "" if sure else f"; CHECK: there are also {others}"


def _windows_of(dataset: Dataset, task: TaskPreset) -> list[str]:
    """Sentences on the windows that the dataset has; ArgumentError, ``frameskip``: It has none."""
    steps, longest = task.history + HORIZON, int(dataset.lengths.max(initial=0))
    windows = WindowIndex(dataset.lengths, num_steps=steps, frameskip=task.frameskip)
    if not len(windows):
        raise ArgumentError(
            "frameskip",
            f"found {task.frameskip}: a window of {task.history} + {HORIZON} frames takes "
            f"{windows.span} rows, and the longest episode has {longest}; wanted at most "
            f"{longest // steps}",
        )
    sentences = [
        f"{len(windows)} windows of {task.history} + {HORIZON} frames in {windows.episodes} of "
        f"{len(dataset.lengths)} episodes"
    ]
    if len(windows) < 100:
        sentences.append("fewer than the 100 anchors of the default: give --anchors, or more data")
    return sentences
