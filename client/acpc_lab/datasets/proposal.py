"""Proposes a task file for a dataset: what its columns show, and what only its owner knows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from acpc.datasets import MAKES_FRAMES, Dataset, TaskPreset, WindowIndex, draw_windows, parse_task
from acpc_client import DatasetAnchors
from acpc_client.errors import ArgumentError, FailedPrecondition

HORIZON = 8
"""Future frames of the paper's protocol, for which windows are counted."""
_KNOWN: Mapping[str, tuple[str, ...]] = {
    "pixels": ("pixels",),
    "action": ("action",),
    "state": ("pos_agent", "state", "observation", "observation.state", "observation_state"),
}


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
            why = error.message
        try:
            found.append(FoundColumn(name, "numbers", dataset.numeric_column(name).shape))
        except FailedPrecondition as error:
            framed = "must" in why and "numbers" in error.message and MAKES_FRAMES not in why
            found.append(FoundColumn(name, "unusable", why=error.message if framed else why))
    return found


def proposed(
    dataset: Dataset, columns: Sequence[FoundColumn], chosen: TaskChoice
) -> tuple[str, list[str]]:
    """The text of a task file that a server can read this dataset by, and what to know of it.

    Raises ArgumentError: A column is not there, or none can be proposed; names the field;
    FailedPrecondition: The dataset cannot be read as the task says.
    """
    frames = [one.name for one in columns if one.kind == "frames"]
    for one in columns if chosen.pixels or not frames else ():
        if one.why and (
            one.name == chosen.pixels or (not chosen.pixels and MAKES_FRAMES in one.why)
        ):
            raise ArgumentError("pixels", one.why)
    widths = {one.name: int(np.prod(one.shape[1:])) for one in columns if one.kind == "numbers"}
    pixels, pixels_note = _pick("pixels", chosen.pixels, frames)
    action, action_note = _pick("action", chosen.action, list(widths))
    others = [name for name in widths if name != action]
    state, state_note = _pick("state", chosen.state, others)
    skip, labels = chosen.frameskip or 5, chosen.labels or tuple(range(min(2, widths[state])))
    block = f"{skip} x {widths[action]} = {skip * widths[action]}"
    must = f"frameskip x action width ({block}) must be the checkpoint's action block width"
    asked = "" if chosen.frameskip else "CHECK: the dataset does not say it; 5 is the paper's. "
    split = "" if chosen.labels else "CHECK: proposed; which coordinates make states different? "
    lines = [
        f"name: {json.dumps(chosen.name)}",
        f"pixels: {json.dumps(pixels)}  # frames{pixels_note}",
        f"action: {json.dumps(action)}  # {widths[action]} wide{action_note}",
        f"state: {json.dumps(state)}  # {widths[state]} wide{state_note}",
        f"frameskip: {skip}  # environment steps between kept frames. {asked}{must}",
        f"history: {chosen.history}  # frames of history that the model takes",
        "# proprio: NAME  # column of proprioception, for models whose frames come with it",
        f"labels:  # {split}One bit each: above the median over the anchors",
        f"  - {{rule: coordinates, of: {list(labels)}}}",
    ]
    text = "\n".join(lines) + "\n"
    return text, _checked(dataset, parse_task(chosen.name, text.encode()))


def _pick(what: str, given: str | None, names: list[str]) -> tuple[str, str]:
    """The column, and a comment: of those there are the one asked for, a known name, the only."""
    if given is not None:
        if given not in names:
            found = f"found {given!r}, wanted one of {', '.join(names) or 'those there are: none'}"
            raise ArgumentError(what, found)
        return given, ""
    known = [name for name in _KNOWN[what] if name in names]
    if known or len(names) == 1:
        name = (known or names)[0]
        rest = [json.dumps(other) for other in names if other != name]
        sure = not rest or name == what  # there may be more cameras, and numbers of other kinds
        return name, "" if sure else f"; CHECK: there are also {', '.join(rest)}"
    if not names:
        raise ArgumentError(what, f"no column of the dataset can be the {what}: see its columns")
    raise ArgumentError(what, f"is none that is known; name it: one of {', '.join(names)}")


def _checked(dataset: Dataset, task: TaskPreset) -> list[str]:
    """Draws two anchors as the server does, reads one, and describes the dataset."""
    steps, longest = task.history + HORIZON, int(dataset.lengths.max(initial=0))
    windows = WindowIndex(dataset.lengths, num_steps=steps, frameskip=task.frameskip)
    if not len(windows):
        raise ArgumentError(
            "frameskip",
            f"found {task.frameskip}: a window of {task.history} + {HORIZON} frames takes "
            f"{windows.span} rows, and the longest episode has {longest}; wanted at most "
            f"{longest // steps}",
        )
    source = DatasetAnchors(dataset.name, task.name, count=min(2, len(windows)))
    drawn = draw_windows(
        dataset,
        task,
        source.resolved().with_windows(task.reading, HORIZON),
        history=task.history,
        horizon=HORIZON,
    )
    drawn.pixels.gather(drawn.frame_rows[:1])
    sentences = [
        f"{len(windows)} windows of {task.history} + {HORIZON} frames in {windows.episodes} of "
        f"{len(dataset.lengths)} episodes"
    ]
    if len(windows) < 100:
        sentences.append("fewer than the 100 anchors of the default: give --anchors, or more data")
    return sentences
