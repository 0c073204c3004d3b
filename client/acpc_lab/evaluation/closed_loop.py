"""Runs a closed loop for every checkpoint and shift, and keeps how many episodes succeed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

from acpc_client import CheckpointRef, Identity, Perturbation, write_whole
from acpc_client.errors import ArgumentError

from acpc_lab.studies import StudyCheckpoint
from acpc_lab.tables import Column, Integers, Numbers, Rows, Texts, read_rows, to_csv

SEEDS = (42, 43, 44)
"""Evaluation seeds of the paper, section "Models, Tasks, and Evaluation"."""
EPISODES = 100
"""Episodes of each seed in the paper."""


class ClosedLoop(Protocol):
    """A world in which a planner acts through a frozen checkpoint: the plug-in.

    The shift is applied to what the planner observes; goals stay clean. Starts, goals and random
    numbers depend on the seed alone, so that all checkpoints and shifts meet the same episodes.
    """

    def evaluate(
        self, checkpoint: CheckpointRef, shift: Perturbation, seeds: Sequence[int], episodes: int
    ) -> Sequence[int]:
        """How many of the episodes of each seed reach the goal.

        Args:
            checkpoint: The frozen world model to plan through.
            shift: Visual change of the observations; ``Identity`` for none.
            seeds: Evaluation seeds.
            episodes: Episodes of each seed.
        """
        ...


@dataclass(frozen=True, eq=False)
class SuccessRows(Rows):
    """A row per checkpoint, shift and evaluation seed."""

    task: Annotated[Texts, Column("task")]
    run: Annotated[Texts, Column("training run, for example its seed")]
    level: Annotated[Numbers, Column("augmentation level; 0: the unaugmented reference", low=0)]
    checkpoint: Annotated[Texts, Column("checkpoint, with its weights file where it has several")]
    shift: Annotated[Texts, Column("visual shift in its short form; identity: clean")]
    seed: Annotated[Integers, Column("evaluation seed", low=0)]
    episodes: Annotated[Integers, Column("episodes of the seed", low=1)]
    successes: Annotated[Integers, Column("episodes that reach the goal", low=0)]


def evaluate_all(
    loops: Callable[[str], ClosedLoop],
    checkpoints: Sequence[StudyCheckpoint],
    shifts: Iterable[Perturbation],
    path: Path,
    *,
    seeds: Sequence[int] = SEEDS,
    episodes: int = EPISODES,
) -> SuccessRows:
    """Evaluates every checkpoint on clean observations and under every shift.

    Rows are written after each checkpoint and shift; the same call resumes an interrupted one.

    Args:
        loops: The world of a task, by the task's name.
        checkpoints: What to plan through.
        shifts: Visual changes; clean observations come first in any case.
        path: CSV file of the rows.
        seeds: Evaluation seeds.
        episodes: Episodes of each seed.

    Returns:
        All rows of the file.

    Raises ArgumentError: The file holds other rows, or a world answers with impossible successes.
    """
    columns: dict[str, list[Any]] = {field.name: [] for field in SuccessRows.fields()}
    if path.exists():
        held = read_rows(path, SuccessRows)
        columns = {name: values.tolist() for name, values in held.columns().items()}
    done = set(zip(*list(columns.values())[:-1], strict=True))  # all but the successes
    for row in checkpoints:
        name = "/".join(part for part in (row.checkpoint.name, row.checkpoint.weights) if part)
        for shift in dict.fromkeys((Identity(), *shifts)):
            where = (row.task, row.run, row.level, name, str(shift))
            left = [seed for seed in seeds if (*where, seed, episodes) not in done]
            if not left:
                continue
            found = loops(row.task).evaluate(row.checkpoint, shift, left, episodes)
            if len(found) != len(left) or not all(0 <= count <= episodes for count in found):
                raise ArgumentError(
                    "successes",
                    f"{row}: found {list(found)}, wanted {len(left)} counts of 0 to {episodes}",
                )
            for seed, count in zip(left, found, strict=True):
                cells = (*where, seed, episodes, int(count))
                for column, value in zip(columns.values(), cells, strict=True):
                    column.append(value)
            write_whole(path, to_csv(SuccessRows.of(columns)).encode())
    return SuccessRows.of(columns)
