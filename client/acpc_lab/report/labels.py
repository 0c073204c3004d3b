"""Finds which labels of a sweep are task, run, level and success rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from acpc_client.errors import ArgumentError

Label = str | int | float | bool
_TASKS = ("task",)
_RUNS = ("run", "training_seed", "training_run")
_FAMILY = "family"
_LEVELS = ("level", "noise", "sigma", "std", "augmentation", "strength", "epoch", "step")
_SUCCESS = ("success", "success_rate")
_CLEAN = ("clean_success", "clean_success_rate")


@dataclass(frozen=True)
class LabelNames:
    """Names of the labels that mean something to the report; empty: the first usual name there is.

    Attributes:
        level: Augmentation level, a number; else ``level``, ``noise``, ``sigma``, ``std``, ...
        run: Training run; else ``run``, ``training_seed`` or ``training_run``.
        task: Task; else ``task``.
    """

    level: str = ""
    run: str = ""
    task: str = ""


@dataclass(frozen=True)
class Reading:
    """The names in use, and how rates are scaled."""

    level: str
    run: str
    task: str
    families: bool
    percent: bool

    def task_of(self, labels: Mapping[str, Label], otherwise: str) -> str:
        """The task, with the model family where the sweep has several."""
        task = self.text(labels, self.task) or otherwise
        family = self.text(labels, _FAMILY) if self.families else ""
        return " \N{MIDDLE DOT} ".join(filter(None, (task, family)))

    def number(self, labels: Mapping[str, Label], name: str) -> float | None:
        """A label as a number; None when absent or something else."""
        return _number(labels.get(name))

    def text(self, labels: Mapping[str, Label], name: str) -> str:
        """A label as text; empty when absent."""
        return str(labels[name]) if name in labels else ""

    def success(self, labels: Mapping[str, Label], kind: str) -> float | None:
        """Success rate under a kind of shift: ``success_<kind>``, else ``success``."""
        return self._rate(labels, (*(f"{name}_{kind}" for name in _SUCCESS), *_SUCCESS))

    def clean_success(self, labels: Mapping[str, Label]) -> float | None:
        """Success rate on clean frames."""
        return self._rate(labels, _CLEAN)

    def _rate(self, labels: Mapping[str, Label], names: Sequence[str]) -> float | None:
        found = next((_number(labels[name]) for name in names if name in labels), None)
        return found if found is None or not self.percent else found / 100


def read_names(names: LabelNames, cells: Iterable[Mapping[str, Label]]) -> Reading:
    """The label names that these cells have.

    Rates above 1 mean per cent, for all of them. Raises ArgumentError: A label that was asked for
    and that no cell has.
    """
    listed = list(cells)
    known = {name for labels in listed for name in labels}
    for wanted in (names.level, names.run, names.task):
        if wanted and wanted not in known:
            raise ArgumentError(
                "label",
                f"no checkpoint has the label {wanted}; there are: {', '.join(sorted(known))}",
            )
    rates = [
        _number(value) or 0.0
        for labels in listed
        for name, value in labels.items()
        if name.startswith(_SUCCESS) or name in _CLEAN
    ]
    numeric = {name for labels in listed for name, v in labels.items() if _number(v) is not None}
    return Reading(
        level=names.level or _first(_LEVELS, numeric),
        run=names.run or _first(_RUNS, known),
        task=names.task or _first(_TASKS, known),
        families=len({labels.get(_FAMILY) for labels in listed}) > 1,
        percent=any(rate > 1 for rate in rates),
    )


def _first(candidates: Sequence[str], known: set[str]) -> str:
    return next((name for name in candidates if name in known), "")


def _number(value: Label | None) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)
