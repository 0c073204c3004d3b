"""Makes report data from sweeps, jobs at a server, and scores in files or in memory."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from acpc.contract import changed, check, to_plain
from acpc_client import (
    Access,
    AnchorValues,
    CheckpointRef,
    DatasetAnchors,
    Operation,
    Reading,
    Result,
    Score,
    ScoreProtocol,
    ScoreRequest,
    load_result,
)
from acpc_client.errors import ArgumentError

from acpc_lab.campaigns import TaskState
from acpc_lab.factors import CertifiedShare
from acpc_lab.report.labels import LabelNames, read_names
from acpc_lab.report.model import Measurement, ProtocolUsed, ReportData, Share
from acpc_lab.sweeps import Cell, CellResult, Node, SweepFolder, SweepResults, read_spec

if TYPE_CHECKING:
    from acpc_client import AcpcClient

_DEFAULT_WEIGHTS = ("", "weights.pt")
# Measurements of one state that are named; further ones are counted.
_NAMED = 4
_NO_JOBS = "the source names no jobs whose anchors a server could show."


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
    named = scores.items() if isinstance(scores, Mapping) else ((_name(s), s) for s in scores)
    cells = tuple(
        dataclasses.replace(_measured(Result.of(score), shift), name=name) for name, score in named
    )
    return _report(cells, title)


def from_files(paths: Sequence[str | Path], *, shift: str = "", title: str = "") -> ReportData:
    """A report of scores in files: what ``save_result`` or ``acpc score --output`` wrote.

    Args:
        paths: The files.
        shift: The shift in words, for files that do not tell what was asked: those of earlier
            releases, and of scores that were saved alone.
        title: Heading; empty: the checkpoint's name, or how many there are.

    Raises ArgumentError: No such file, or no score in it.
    """
    cells = []
    for path in paths:
        result = load_result(path)
        if result.kind != "score":
            raise ArgumentError("source", f"{path} holds a {result.kind}; this report is of scores")
        cells.append(_measured(result, shift, str(path)))
    return _report(tuple(cells), title)


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
    data = _report(tuple(cells), title)
    if len(recipes) == 1 and recipes[0]:
        data = data.with_(command="acpc sweep run again.yaml", recipe=recipes[0])
    return data.with_(previews_missing="")


def from_sweep(
    source: str | Path | SweepResults, *, labels: LabelNames | None = None, title: str = ""
) -> ReportData:
    """A report of a sweep, finished or not, without pictures; ``with_pictures`` adds them.

    Raises ArgumentError: The sweep has not been run yet, or has no such label; FailedPrecondition:
    Its files cannot be read.
    """
    results = source if isinstance(source, SweepResults) else SweepResults.open(source)
    reading = read_names(labels or LabelNames(), [item.cell.labels for item in results])
    cells = []
    for item in results:
        cell = item.cell
        anchors = cell.anchors
        cells.append(
            Measurement(
                name=_called(results, cell),
                shift=str(cell.shift),
                score=item.score and _sound(item.score, str(results.folder / cell.id)),
                task=reading.task_of(
                    cell.labels, anchors.task if isinstance(anchors, DatasetAnchors) else ""
                ),
                run=reading.text(cell.labels, reading.run),
                level=reading.number(cell.labels, reading.level),
                success=reading.success(cell.labels, cell.shift.kind),
                clean_success=reading.clean_success(cell.labels),
                problem=_problem(item),
                operation=item.operation,
                protocol=_protocol(cell.protocol, anchors, item.score),
                pending=not item.state.done,
                of_reference=cell.of_reference,
            )
        )
    plan = SweepFolder(results.folder).read_plan()
    return _report(tuple(cells), title or results.name).with_(
        family_wise=results.family_wise,
        description=results.description,
        command="acpc sweep run again.yaml",
        recipe="" if plan is None else again(plan.document),
        level_name=reading.level,
        previews_missing="",
        notes=(*results.inconsistencies, *_under_way(results)),
    )


def _called(results: SweepResults, cell: Cell) -> str:
    """Name of a cell's checkpoint; where other content came under it, with the content's."""
    return _title(cell.checkpoint.name, cell.checkpoint.weights) + results.apart[cell.id]


def _under_way(results: SweepResults) -> Iterator[str]:
    """What the server measures now, and what waits."""
    states = TaskState.RUNNING, TaskState.QUEUED, TaskState.WAITING, TaskState.PENDING
    for state in states:
        found = [item.cell for item in results if item.state is state]
        if found:
            names = [f"{_called(results, cell)} under {cell.shift}" for cell in found[:_NAMED]]
            more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            yield f"{state.value.capitalize()}: {', '.join(names)}{more}."


def with_certified(data: ReportData, shares: Iterable[CertifiedShare]) -> ReportData:
    """The data with the certified fraction of each measurement that has one of the same weights."""
    known = {(it.checkpoint, it.shift): it for it in shares}
    cells, others = [], set()
    for cell in data.cells:
        share = known.get((cell.name, cell.shift))
        if share and cell.score and share.checkpoint_digest != cell.score.receipt.checkpoint_digest:
            others.add(cell.name)
            share = None
        found = Share(share.certified, share.anchors, f"; {share.source}") if share else None
        cells.append(dataclasses.replace(cell, certified=found))
    named = ", ".join(sorted(others))
    note = f"Certified fractions of {named} are of other weights, and are left out."
    return data.with_(cells=tuple(cells), notes=(*data.notes, *([note] if others else [])))


def server_of(results: SweepResults) -> tuple[str | None, Access]:
    """The server that the sweep's file names, and how to get in."""
    plan = SweepFolder(results.folder).read_plan()
    if plan is None:
        return None, {}
    spec = read_spec(Node(plan.document), plan.name, results.folder.parent)
    return spec.target, spec.access


def _report(cells: tuple[Measurement, ...], title: str) -> ReportData:
    if not cells:
        raise ArgumentError("source", "found no scores, wanted at least one")
    names = dict.fromkeys(cell.name for cell in cells)
    named = title or (cells[0].name if len(names) == 1 else f"{len(names)} checkpoints")
    return ReportData(title=named, cells=cells, previews_missing=_NO_JOBS)


def _sound(score: Score, where: str) -> Score:
    """The score, of whose numbers a page can be made.

    Raises ArgumentError: A number is one that no measurement gives; names ``where`` and its field.
    """
    thresholds, answer = score.verdict.thresholds, {"checkpoint": score.checkpoint}
    answer |= {"reference": score.reference} if score.reference else {}
    try:
        check(thresholds, "answer.verdict.thresholds")
        for name, side in answer.items():
            for index, summary in enumerate(side.summaries):
                if not 0 <= summary.quantile <= 1:
                    field = f"answer.{name}.summaries[{index}].quantile"
                    raise ArgumentError(field, f"found {summary.quantile}, wanted 0 to 1")
            if side.anchor_values is not None:
                _check_values(side.anchor_values, f"answer.{name}.anchor_values")
    except ArgumentError as error:
        raise ArgumentError("source", f"{where}: {error.field}: {error.description}") from error
    return score


def _check_values(values: AnchorValues, path: str) -> None:
    count = len(values.anchor_ids)
    for field in dataclasses.fields(values):
        found = getattr(values, field.name)
        if not isinstance(found, np.ndarray):
            continue
        if len(found) != count:
            wanted = f"wanted {count}, as many as anchor_ids"
            raise ArgumentError(f"{path}.{field.name}", f"found {len(found)} entries, {wanted}")
        if field.name == "partner":
            wrong, wanted = (found < -1) | (found >= count), "an index of an anchor, or -1"
        elif field.name == "different_state_distance":
            wrong, wanted = np.isinf(found), "a finite number, or NaN where skipped"
        elif found.dtype == np.float64:
            wrong, wanted = ~np.isfinite(found), "a finite number"
        else:
            continue
        for place in np.argwhere(wrong)[:1].tolist():
            at = "".join(f"[{index}]" for index in place)
            bad = found[tuple(place)]
            raise ArgumentError(f"{path}.{field.name}{at}", f"found {bad}, wanted {wanted}")


def _measured(result: Result, shift: str = "", where: str = "the score") -> Measurement:
    """A score with what its request tells; ``shift`` is used where there is no request."""
    request, score = result.score_request, _sound(result.answer, where)
    shift = shift or f"shift {score.receipt.perturbation_digest[:8]}"
    protocol = _told_by(score)
    task = ""
    if request is not None:
        shift = shift if request.shift is None else str(request.shift)
        protocol = _protocol(request.protocol, request.anchors or "", score)
        task = request.anchors.task if isinstance(request.anchors, DatasetAnchors) else ""
    return Measurement(
        name=_name(score),
        shift=shift,
        score=score,
        task=task,
        operation=result.operation,
        protocol=protocol,
    )


def _name(score: Score) -> str:
    checkpoint = score.checkpoint.checkpoint
    return _title(checkpoint.name, checkpoint.weights)


def _title(name: str, weights: str) -> str:
    return name if weights in _DEFAULT_WEIGHTS else f"{name}/{weights}"


def _problem(item: CellResult) -> str:
    if item.code:
        return f"{item.state.value}: {item.code}: {item.message}"
    return "" if item.score is not None or not item.state.done else item.state.value


def _told_by(score: Score) -> ProtocolUsed:
    """What a score alone tells: its last summary is the main one, at H and q."""
    main = score.checkpoint.summaries[-1] if score.checkpoint.summaries else None
    values = score.checkpoint.anchor_values
    return ProtocolUsed(
        horizon=None if main is None else main.horizon,
        quantile=None if main is None else main.quantile,
        draws=None if values is None else values.draw_radius.shape[1],
        anchors=f"{score.checkpoint.anchors} anchors",
    )


def _protocol(
    asked: ScoreProtocol, anchors: DatasetAnchors | str, score: Score | None
) -> ProtocolUsed:
    """The protocol as asked."""
    count = f"{score.checkpoint.anchors} anchors of " if score is not None else ""
    if isinstance(anchors, str):
        where = f"set {anchors[:12]}"
    else:
        where = f"{anchors.dataset}, task {anchors.task}, seed {anchors.seed}"
    return ProtocolUsed(
        horizon=asked.horizon,
        quantile=asked.quantile,
        margin=asked.margin,
        draws=asked.draws,
        seed=asked.seed,
        weights=asked.weights,
        reading=str(asked.reading or Reading.PAPER),
        neighbourhood=asked.neighbourhood,
        anchors=count + where,
    )


def recipe(request: ScoreRequest) -> str:
    """The sweep file of one job, as JSON, which is YAML too; empty for an unknown shift."""
    if request.shift is None:
        return ""
    anchors = request.anchors or ""
    protocol = to_plain(changed(request.protocol))
    document: dict[str, Any] = {
        "checkpoints": [_named(request.checkpoint)],
        "anchors": {"set": anchors} if isinstance(anchors, str) else changed(anchors),
        "shifts": [{request.shift.kind: dataclasses.asdict(request.shift)}],
        "seeds": [protocol.pop("seed", 0)],
        "protocol": protocol,
        "thresholds": changed(request.thresholds),
        "evidence": changed(request.evidence),
        "numeric_mode": request.numeric_mode.name.lower(),
    }
    if request.reference is not None:
        document["reference"] = _named(request.reference)
    if request.until_decided is not None:
        document["until_decided"] = request.until_decided.batch
    return again(document)


def again(document: Mapping[str, Any]) -> str:
    """The text of a sweep file without its name: under it the server would find the old jobs."""
    kept = {key: value for key, value in document.items() if key != "name"}
    return json.dumps(kept, indent=2, ensure_ascii=False)


def _named(checkpoint: CheckpointRef) -> dict[str, str]:
    named = {"name": checkpoint.name}
    return named | ({"weights": checkpoint.weights} if checkpoint.weights else {})
