"""Makes report data from sweeps, jobs at a server, and scores in files or in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acpc.contract import check, check_score, from_plain
from acpc_client import (
    Access,
    CheckpointRef,
    DatasetAnchors,
    Operation,
    Result,
    Score,
    ScoreProtocol,
    load_result,
)
from acpc_client.errors import ArgumentError

from acpc_lab.campaigns import TaskState
from acpc_lab.report.model import Measurement, ReportData, dotted, some
from acpc_lab.sweeps import Cell, Label, Node, SweepFolder, SweepResults, again, read_spec, recipe

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


def from_scores(
    scores: Mapping[str, Score] | Sequence[Score], *, shift: str = "", title: str = ""
) -> ReportData:
    """A report of scores in hand.

    Args:
        scores: By the name to show, or in a sequence to go by the checkpoints' names.
        shift: The shift in words; empty: named by its digest, which is all a score tells.
        title: Heading; empty: the checkpoint's name, or how many there are.

    Raises ArgumentError: There are no scores.
    """
    named = scores.items() if isinstance(scores, Mapping) else ((None, score) for score in scores)
    return _report([_measured(Result.of(score), shift, name=name) for name, score in named], title)


def from_files(paths: Sequence[str | Path], *, shift: str = "", title: str = "") -> ReportData:
    """A report of scores in files: what ``save_result`` or ``acpc score --output`` wrote.

    Args:
        paths: The files.
        shift: The shift in words, for scores that were saved alone, without what was asked.
        title: Heading; empty: the checkpoint's name, or how many there are.

    Raises ArgumentError: No such file, or no score in it.
    """
    cells = []
    for path in paths:
        result = load_result(path)
        if result.kind != "score":
            raise ArgumentError("source", f"{path} holds a {result.kind}; this report is of scores")
        cells.append(_measured(result, shift, str(path)))
    return _report(cells, title)


def from_operations(
    client: AcpcClient, jobs: Sequence[str | Operation], *, title: str = ""
) -> ReportData:
    """A report of jobs at a server, or as they ended, without pictures; see ``with_pictures``.

    Raises ArgumentError: A job that scores no checkpoint; AcpcError: The server rejected it; also
    when a job has not ended.
    """
    cells, recipes = [], []
    for job in jobs:
        operation = client.operations.get(job) if isinstance(job, str) else job
        name = operation.name
        if operation.study is not None:
            raise ArgumentError("source", f"{name} is a study; this report is of scores")
        operation.result()  # raises why there is none
        cells.append(_measured(Result.of(operation), where=name))
        recipes.append(recipe(operation.request) if operation.request else "")
    data = _report(cells, title).with_(previews_missing="")
    if len(recipes) == 1 and recipes[0]:
        return data.with_(command=_AGAIN, recipe=recipes[0])
    return data


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


def from_sweep(
    source: str | Path | SweepResults, *, labels: LabelNames | None = None, title: str = ""
) -> ReportData:
    """A report of a sweep, finished or not, without pictures; ``with_pictures`` adds them.

    Raises ArgumentError: The sweep has not been run yet, or has no such label; FailedPrecondition:
    Its files cannot be read.
    """
    results = source if isinstance(source, SweepResults) else SweepResults.open(source)
    level_name, read = read_labels(labels or LabelNames(), [item.cell for item in results])
    cells = []
    for item, known in zip(results, read, strict=True):
        why = f"{item.state.value}: {item.error}" if item.error else item.state.value
        cells.append(
            Measurement(
                name=_called(results, item.cell),
                shift=str(item.cell.shift),
                score=item.score and _sound(item.score, str(results.folder / item.cell.id)),
                problem=why if item.error or (item.state.done and item.score is None) else "",
                operation=item.operation,
                protocol=item.cell.protocol,
                anchors=_anchors(item.score, item.cell.anchors),
                pending=not item.state.done,
                of_reference=item.cell.of_reference,
                **known,
            )
        )
    plan = SweepFolder(results.folder).read_plan()
    return _report(cells, title or results.name).with_(
        family_wise=results.family_wise,
        description=results.description,
        command=_AGAIN,
        recipe="" if plan is None else again(plan.document),
        level_name=level_name,
        previews_missing="",
        notes=(*results.inconsistencies, *_under_way(results)),
    )


def read_labels(names: LabelNames, cells: Sequence[Cell]) -> tuple[str, list[dict[str, Any]]]:
    """Which label is the level, and task, run, level and success rates of each cell.

    Rates above 1 mean per cent, for all of them. The success rate is that under the cell's kind of
    shift, ``success_<kind>``, else ``success``. A task has its model family with it where the sweep
    has several: relative IR compares within one.

    Raises ArgumentError: A label that was asked for and that no cell has.
    """
    known = {name for cell in cells for name in cell.labels}
    for wanted in filter(None, (names.level, names.run, names.task)):
        if wanted not in known:
            listed = ", ".join(sorted(known))
            raise ArgumentError(
                "label", f"no checkpoint has the label {wanted}; there are: {listed}"
            )
    numeric = {
        n for cell in cells for n, value in cell.labels.items() if _number(value) is not None
    }
    used = {
        part: getattr(names, part)
        or next((n for n in usual if n in (numeric if part == "level" else known)), "")
        for part, usual in _USUAL.items()
    }
    families = len({cell.labels.get("family") for cell in cells}) > 1
    rates = (n for n in known if n.startswith(_SUCCESS) or n in _CLEAN)
    highest = max((_number(c.labels.get(n)) or 0 for n in rates for c in cells), default=0)

    def rate(cell: Cell, options: Sequence[str]) -> float | None:
        found = next((_number(cell.labels[n]) for n in options if n in cell.labels), None)
        return found if found is None or highest <= 1 else found / 100

    def read(cell: Cell) -> dict[str, Any]:
        labels = {part: str(cell.labels.get(name, "")) for part, name in used.items()}
        own = cell.anchors.task if isinstance(cell.anchors, DatasetAnchors) else ""
        family = str(cell.labels.get("family", "")) if families else ""
        return {
            "task": dotted(labels["task"] or own, family),
            "run": labels["run"],
            "level": _number(cell.labels.get(used["level"])),
            "success": rate(cell, [*(f"{n}_{cell.shift.kind}" for n in _SUCCESS), *_SUCCESS]),
            "clean_success": rate(cell, _CLEAN),
        }

    return used["level"], [read(cell) for cell in cells]


def _number(value: Label | None) -> float | None:
    """A label as a number; None when absent or something else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _called(results: SweepResults, cell: Cell) -> str:
    """Name of a cell's checkpoint; where other content came under it, with the content's."""
    return _title(cell.checkpoint) + results.apart[cell.id]


def _under_way(results: SweepResults) -> Iterator[str]:
    """Lists what the server measures now, and what waits."""
    states = TaskState.RUNNING, TaskState.QUEUED, TaskState.WAITING, TaskState.PENDING
    for state in states:
        found = [item.cell for item in results if item.state is state]
        if found:
            names = [f"{_called(results, cell)} under {cell.shift}" for cell in found]
            yield f"{state.value.capitalize()}: {some(names, _NAMED)}."


def server_of(results: SweepResults) -> tuple[str | None, Access]:
    """The server that the sweep's file names, and how to get in."""
    plan = SweepFolder(results.folder).read_plan()
    if plan is None:
        return None, {}
    spec = read_spec(Node(plan.document), plan.name, results.folder.parent)
    return spec.target, spec.access


def _report(cells: Sequence[Measurement], title: str) -> ReportData:
    if not cells:
        raise ArgumentError("source", "found no scores, wanted at least one")
    names = dict.fromkeys(cell.name for cell in cells)
    named = title or (cells[0].name if len(names) == 1 else f"{len(names)} checkpoints")
    return ReportData(title=named, cells=tuple(cells), previews_missing=_NO_JOBS)


def _sound(score: Score, where: str) -> Score:
    """The score, of whose numbers a page can be made.

    Raises ArgumentError: A number is one that no measurement gives; names ``where`` and its field.
    """
    try:
        check_score(score)
    except ArgumentError as error:
        raise ArgumentError("source", f"{where}: {error.field}: {error.description}") from error
    return score


def _measured(
    result: Result, shift: str = "", where: str = "the score", name: str | None = None
) -> Measurement:
    """A score with what its request tells; ``shift`` is used where there is no request."""
    request, score = result.score_request, _sound(result.answer, where)
    anchors = (request and request.anchors) or ""
    if request is not None and request.shift is not None:
        shift = str(request.shift)
    return Measurement(
        name=_title(score.checkpoint.checkpoint) if name is None else name,
        shift=shift or f"shift {score.receipt.perturbation_digest[:8]}",
        score=score,
        task=anchors.task if isinstance(anchors, DatasetAnchors) else "",
        operation=result.operation,
        protocol=_protocol(score, where) if request is None else request.protocol,
        anchors=_anchors(score, anchors),
    )


def _protocol(score: Score, where: str) -> ScoreProtocol:
    """Reads the protocol of a score from its receipt; the paper's where that has none."""
    asked = score.receipt.parameters.get("protocol") or {}
    known = {f.name for f in dataclasses.fields(ScoreProtocol)} & asked.keys()
    path = f"{where}: answer.receipt.parameters.protocol"
    protocol = from_plain(ScoreProtocol, {name: asked[name] for name in known}, path)
    check(protocol, path)
    return protocol


def _title(checkpoint: CheckpointRef) -> str:
    """Name of a checkpoint, with its weights file where it is not the usual one."""
    usual = checkpoint.weights in _DEFAULT_WEIGHTS
    return checkpoint.name if usual else f"{checkpoint.name}/{checkpoint.weights}"


def _anchors(score: Score | None, anchors: DatasetAnchors | str) -> str:
    """Words how many anchors there are, and of what."""
    where = f"set {anchors[:12]}" if isinstance(anchors, str) and anchors else ""
    if isinstance(anchors, DatasetAnchors):
        where = f"{anchors.dataset}, task {anchors.task}, seed {anchors.seed}"
    count = f"{score.checkpoint.anchors} anchors" if score is not None else ""
    return " of ".join(filter(None, (count, where)))
