"""Makes report data from sweeps, jobs at a server, and scores in files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acpc.contract import check_score
from acpc_client import CheckpointRef, DatasetAnchors, Operation, Result, Score, load_result
from acpc_client.errors import ArgumentError

from acpc_lab.campaigns import TaskState
from acpc_lab.report.model import ReportData, dotted
from acpc_lab.sweeps import Cell, CellResult, Label, SweepResults, again, some

if TYPE_CHECKING:
    from acpc_client import AcpcClient

_DEFAULT_WEIGHTS = ("", "weights.pt")
# Measurements of one state that are named; further ones are counted.
_NAMED = 4
_NO_JOBS = "the source names no jobs whose anchors a server could show."
_AGAIN = "acpc sweep run again.yaml"
# Labels of a sweep that mean something, the first one that there is.
_USUAL = {
    "task": ("task",),
    "run": ("run", "training_seed", "training_run"),
    "level": ("level", "noise", "sigma", "std", "augmentation", "strength", "epoch", "step"),
}
_SUCCESS, _CLEAN = ("success", "success_rate"), ("clean_success", "clean_success_rate")


def from_files(paths: Sequence[str | Path], *, title: str = "") -> ReportData:
    """A report of scores in files with what was asked, as ``acpc score --out`` writes them.

    Args:
        paths: The files.
        title: Heading; empty: the checkpoint's name, or how many there are.

    Raises ArgumentError: No such file, no score in it, or not what was asked.
    """
    cells = []
    for path in paths:
        result = load_result(path)
        if result.kind != "score":
            raise ArgumentError("source", f"{path} holds a {result.kind}; this report is of scores")
        cells.append(_measured(result, str(path)))
    return _report(cells, title, previews_missing=_NO_JOBS)


def from_operations(
    client: AcpcClient, jobs: Sequence[str | Operation], *, title: str = ""
) -> ReportData:
    """A report of jobs at a server, or as they ended, without pictures; see ``with_pictures``.

    Raises ArgumentError: A job that scores no checkpoint; AcpcError: The server rejected it; also
    when a job has not ended.
    """
    cells = []
    for job in jobs:
        operation = client.operations.get(job) if isinstance(job, str) else job
        name = operation.name
        if operation.study is not None:
            raise ArgumentError("source", f"{name} is a study; this report is of scores")
        operation.result()  # raises why there is none
        cells.append(_measured(Result.of(operation), name))
    return _report(cells, title)


def from_sweep(
    source: str | Path | SweepResults,
    *,
    labels: Mapping[str, str] = {},
    title: str = "",
) -> ReportData:
    """A report of a sweep, finished or not, without pictures; ``with_pictures`` adds them.

    Args:
        source: The sweep file, the folder beside it, or its results.
        labels: Which label is the augmentation ``level``, the training ``run`` or the ``task``;
            the first usual name there is where it is left out.
        title: Heading; empty: the sweep's name.

    Raises ArgumentError: The sweep has not been run yet, or has no such label; FailedPrecondition:
    Its files cannot be read.
    """
    results = source if isinstance(source, SweepResults) else SweepResults.open(source)
    for item in results:
        if item.score is not None:
            _require_sound(item.score, str(results.folder / item.cell.id))
    level_name, cells = _labelled(labels, results)
    return _report(
        cells,
        title or results.name,
        correction=results.correction,
        description=results.plan.description,
        command=_AGAIN,
        recipe=again(results.plan.document),
        level_name=level_name,
        notes=(*results.inconsistencies, *results.reference_notes, *_under_way(cells)),
    )


def _labelled(
    names: Mapping[str, str], items: Sequence[CellResult]
) -> tuple[str, list[CellResult]]:
    """Which label is the level, and the rows with task, run, level and success rates of theirs.

    Rates above 1 mean per cent, for all of them. The success rate is that under the cell's kind of
    shift, ``success_<kind>``, else ``success``. A task has its model family with it where the sweep
    has several: relative IR compares within one.

    Raises ArgumentError: A label that was asked for and that no cell has.
    """
    known = {name for item in items for name in item.cell.labels}
    if unknown := names.keys() - _USUAL.keys():
        raise ArgumentError("label", f"found {unknown.pop()!r}, wanted level, run or task")
    for wanted in filter(None, names.values()):
        if wanted not in known:
            listed = ", ".join(sorted(known))
            raise ArgumentError(
                "label", f"no checkpoint has the label {wanted}; there are: {listed}"
            )
    numeric = {n for x in items for n, value in x.cell.labels.items() if _number(value) is not None}
    used = {
        part: names.get(part)
        or next((n for n in usual if n in (numeric if part == "level" else known)), "")
        for part, usual in _USUAL.items()
    }
    families = len({item.cell.labels.get("family") for item in items}) > 1
    rates = [n for n in known if n.startswith(_SUCCESS) or n in _CLEAN]
    highest = max((_number(x.cell.labels.get(n)) or 0 for n in rates for x in items), default=0)

    def rate(cell: Cell, options: Sequence[str]) -> float | None:
        found = next((_number(cell.labels[n]) for n in options if n in cell.labels), None)
        return found if found is None or highest <= 1 else found / 100

    def placed(item: CellResult) -> CellResult:
        cell = item.cell
        labels = {part: str(cell.labels.get(name, "")) for part, name in used.items()}
        own = cell.anchors.task if isinstance(cell.anchors, DatasetAnchors) else ""
        family = str(cell.labels.get("family", "")) if families else ""
        return dataclasses.replace(
            item,
            name=_title(cell.checkpoint, item.name),
            task=dotted(labels["task"] or own, family),
            run=labels["run"],
            level=_number(cell.labels.get(used["level"])),
            success=rate(cell, [*(f"{n}_{cell.shift.kind}" for n in _SUCCESS), *_SUCCESS]),
            clean_success=rate(cell, _CLEAN),
        )

    return used["level"], [placed(item) for item in items]


def _number(value: Label | None) -> float | None:
    """A label as a number; None when absent or something else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _under_way(cells: Sequence[CellResult]) -> Iterator[str]:
    """Lists what the server measures now, and what waits."""
    states = TaskState.RUNNING, TaskState.QUEUED, TaskState.WAITING, TaskState.PENDING
    for state in states:
        names = [f"{item.name} under {item.shift}" for item in cells if item.state is state]
        if names:
            yield f"{state.value.capitalize()}: {some(names, _NAMED)}."


def _report(cells: Sequence[CellResult], title: str, **more: Any) -> ReportData:  # noqa: ANN401
    if not cells:
        raise ArgumentError("source", "found no scores, wanted at least one")
    names = dict.fromkeys(cell.name for cell in cells)
    named = title or (cells[0].name if len(names) == 1 else f"{len(names)} checkpoints")
    return ReportData(title=named, cells=tuple(cells), **more)


def _require_sound(score: Score, where: str) -> None:
    """Checks that a page can be made of the numbers of a score.

    Raises ArgumentError: A number is one that no measurement gives; names ``where`` and its field.
    """
    try:
        check_score(score)
    except ArgumentError as error:
        raise ArgumentError("source", f"{where}: {error.field}: {error.description}") from error


def _measured(result: Result, where: str) -> CellResult:
    """A score with what its request tells.

    Raises ArgumentError: It was saved without one, or a number is one that no measurement gives.
    """
    request, score = result.score_request, result.answer
    if request is None or request.shift is None:
        wanted = "save the job's operation, or use acpc score --out"
        raise ArgumentError("source", f"{where} does not say what was asked; {wanted}")
    _require_sound(score, where)
    cell = Cell(**vars(request))
    return CellResult(
        state=TaskState.SUCCEEDED,
        operation=result.operation,
        cell=cell,
        score=score,
        time=result.time,
        name=_title(score.checkpoint.checkpoint),
        task=cell.anchors.task if isinstance(cell.anchors, DatasetAnchors) else "",
    )


def _title(checkpoint: CheckpointRef, name: str = "") -> str:
    """Name of a checkpoint, with its weights file where it is not the usual one."""
    called = name or checkpoint.name
    if checkpoint.weights in _DEFAULT_WEIGHTS:
        return called
    return f"{checkpoint.name}/{checkpoint.weights}{called.removeprefix(checkpoint.name)}"
