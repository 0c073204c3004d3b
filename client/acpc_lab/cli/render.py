"""Prints answers and errors. Answers go to stdout, all else to stderr."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from acpc.contract import Record
from acpc_client import (
    AnchorContents,
    AnchorSet,
    Checkpoint,
    DatasetFile,
    Operation,
    PairComparison,
    PairedPlan,
    PairedPlans,
    Perturbation,
    PoolCertificate,
    Receipt,
    Result,
    Score,
    SelectionCertificate,
    TaskSummary,
    ViewCertificate,
)
from acpc_client.errors import AcpcError
from rich.console import Console
from rich.table import Table

Item = TypeVar("Item", bound=Record)
Field = str | Callable[[Any], str]
Column = tuple[str, Field] | tuple[str, Field, str]
"""Title, attribute or function, and format of a column."""


def console(*, stderr: bool = False) -> Console:
    """Where tables go; names of checkpoints and tasks are shown letter by letter."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def line(text: str) -> None:
    """Writes one plain line on stdout."""
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    """Writes one plain line on stderr."""
    sys.stderr.write(f"{text}\n")


def presence(away: AcpcError | None) -> None:
    """Writes why the server is away, or that it is back."""
    note(away.message if away else "the server is back")


def error(failure: AcpcError) -> None:
    """Code, message, each field violation on a line, and the request id."""
    note(f"error: {failure.code}: {failure.message}")
    for violation in failure.violations:
        told = f"{violation.field}: {violation.description}"
        if told != failure.message:
            note(f"  {told}")
    if failure.retry_after is not None:
        note(f"  try again in {failure.retry_after:.1f} s")
    if failure.request_id:
        note(f"  request id: {failure.request_id}")


def result(answer: object) -> None:
    """The document of a result, of an operation with an answer, or of an answer."""
    line(Result.of(answer).to_json(indent=2))


def listing(items: Sequence[Item], draw: Callable[[Sequence[Item]], None], as_json: bool) -> None:
    """Items as a JSON list, or as ``draw`` shows them."""
    if as_json:
        line(json.dumps([item.to_dict() for item in items], indent=2))
    else:
        draw(items)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, words: bool = False) -> None:
    """A table on stdout; the first column is text, the others numbers, or ``words`` too."""
    drawn = Table()
    for index, column in enumerate(columns):
        if index == 0:
            drawn.add_column(column, no_wrap=True)
        else:
            drawn.add_column(column, justify="left" if words else "right", overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    console().print(drawn)


def columns(items: Iterable[object], *wanted: Column) -> None:
    """A table of items: each column has a title, an attribute (or a function), and a format."""
    table(
        [title for title, *_ in wanted],
        [[_cell(item, field, *spec) for _, field, *spec in wanted] for item in items],
    )


def _cell(item: object, field: Field, spec: str = "") -> str:
    return number(getattr(item, field), spec) if isinstance(field, str) else field(item)


def number(value: Any, spec: str = "") -> str:  # noqa: ANN401 - whatever a cell holds
    """A value in a format, for example ``.3f``; a dash for None and NaN, six digits by default."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, float) and not spec:
        return f"{value:.6g}"
    return f"{value:{spec}}"


def comparison(answer: PairComparison, shifts: Sequence[Perturbation]) -> None:
    """One row per view."""
    wanted: list[Column] = [
        ("view", lambda r: str(shifts[r.spec_index]) if shifts else f"view {r.draw}"),
        ("draw", "draw"),
        ("ACPC_H", "acpc"),
        ("ACPC_1", "acpc_one_step"),
        ("encoder shift", "encoder_shift"),
    ]
    if any(result.error_drift is not None for result in answer.results):
        wanted += [
            ("error drift", lambda r: number(r.error_drift and r.error_drift.drift)),
            ("drift bound", lambda r: number(r.error_drift and r.error_drift.bound)),
        ]
    columns(answer.results, *wanted)
    receipt(answer.receipt)


def pool(answer: PoolCertificate, shifts: Sequence[Perturbation]) -> None:
    """One row per shift, or one per view of the caller's own; then the severities that hold."""
    grouped: dict[str, list[ViewCertificate]] = {}
    for view in answer.views:
        name = str(shifts[view.spec_index]) if shifts else f"view {view.draw}"
        grouped.setdefault(name, []).append(view)
    with_elites = any(view.elite is not None for view in answer.views)
    titles = ["shift", "winner certified", "smallest margin", "winner changes"]
    titles += ["elite set certified", "smallest margin"] if with_elites else []
    rows = []
    for name, views in grouped.items():
        changes = sum(view.perturbed_winner != answer.clean_winner for view in views)
        row = [name, *_selection([view.top1 for view in views]), f"{changes}/{len(views)}"]
        if with_elites:
            row += _selection([view.elite for view in views if view.elite is not None])
        rows.append(row)
    table(titles, rows)
    gaps = answer.clean_gaps
    if gaps is not None:
        elite = f", elite set {number(gaps.elite)}" if with_elites else ""
        line(f"clean gap that the bounds must not close: winner {number(gaps.top1)}{elite}")
    for severity in answer.certified_severities:
        elite = f", elite set {number(severity.elite)}" if with_elites else ""
        top1 = number(severity.top1)
        line(f"largest certified severity of {severity.kind}: winner {top1}{elite}")
    coverage(answer, with_elites)
    receipt(answer.receipt)


def coverage(answer: PoolCertificate, with_elites: bool) -> None:
    """What is said of all draws: a sentence for each choice, then the severities up to which."""
    for statement in answer.coverage:
        for finding in (statement.top1, statement.elite):
            if finding is not None:
                line(f"{finding.sentence} Proven for {finding.certified} of {finding.draws}.")
    for severity in answer.certified_severities if answer.coverage else ():
        elite = f", elite set {number(severity.confident_elite)}" if with_elites else ""
        top1 = number(severity.confident_top1)
        line(f"largest severity of {severity.kind} with confidence: winner {top1}{elite}")


def paired_plans(answer: PairedPlans, shifts: Sequence[Perturbation]) -> None:
    """One row per view; then the smallest gaps of the clean run."""
    columns(
        answer.views,
        ("view", lambda v: str(shifts[v.spec_index]) if shifts else f"view {v.draw}"),
        ("draw", "draw"),
        ("plan certified", lambda v: _yes(v.certified)),
        ("iterations certified", _certified_iterations),
        ("elite sets part at", "first_divergence"),
        ("selection regret", "selection_regret"),
    )
    if answer.clean_gaps:
        top1 = number(min(gaps.top1 for gaps in answer.clean_gaps))
        elite = number(min(gaps.elite for gaps in answer.clean_gaps if gaps.elite is not None))
        line(f"smallest clean gap of an iteration: winner {top1}, elite set {elite}")
    receipt(answer.receipt)


def _certified_iterations(view: PairedPlan) -> str:
    certified = sum(iteration.elite.certified for iteration in view.iterations)
    return f"{certified}/{len(view.iterations)}"


def _selection(certificates: Sequence[SelectionCertificate]) -> list[str]:
    certified = sum(certificate.certified for certificate in certificates)
    smallest = min((certificate.margin for certificate in certificates), default=None)
    return [f"{certified}/{len(certificates)}", number(smallest)]


def receipt(proof: Receipt) -> None:
    """What the numbers were computed from."""
    line(
        f"checkpoint {proof.checkpoint_digest[:12]}  anchors {proof.anchors_digest[:12]}  "
        f"acpc {proof.code_version}  {proof.numeric_mode.name.lower()} on {proof.device}"
    )


def score(answer: Score) -> None:
    """The checkpoint beside its reference with intervals, then the verdict in words."""
    sides = [answer.checkpoint] + ([answer.reference] if answer.reference else [])
    titles = ["", *(side.checkpoint.name for side in sides)]
    titles[2:] = [f"{name} (reference)" for name in titles[2:]]
    fields: dict[str, Field] = {
        "IR raw": "ir_raw",
        "its rounding floor": "rounding_floor",
        "SR": "sr",
        "anchors": "anchors",
        "eligible for SR": "eligible",
        "skipped by SR": "skipped",
        "median latent distance": "median_latent_distance",
    }
    table(
        titles, [[name, *(_cell(side, field) for side in sides)] for name, field in fields.items()]
    )
    _screen(answer)
    receipt(answer.receipt)
    line(f"{answer.verdict.outcome.name}: {answer.verdict.summary}")
    if answer.certainty:
        line(f"how sure: {answer.certainty}")
    for sentence in answer.rounding_notes:
        line(f"warning: {sentence}")
    for sentence in answer.evidence.notes if answer.evidence else ():
        note(f"warning: {sentence}")


def _screen(answer: Score) -> None:
    """What the screen compares, each number with its interval where the score has them."""
    verdict, limits, found = answer.verdict, answer.verdict.thresholds, answer.evidence
    ir, sr, least = f"<= {number(limits.ir)}", f">= {number(limits.sr)}", ">= 0"
    raw, rate = answer.checkpoint.ir_raw, answer.checkpoint.sr
    rows: list[tuple[str, float | None, str, str, str]] = [
        ("IR relative", verdict.ir_relative, "ir_relative", ir, _yes(verdict.ir_passed)),
        ("SR", rate, "sr", sr, _yes(verdict.sr_passed)),
        ("score S", verdict.score, "score", least, "-"),
        ("S above the reference's", verdict.delta_score, "delta_score", "-", "-"),
        ("IR raw", raw, "ir_raw", "-", "-"),
    ]
    if found is None:
        shown = [[name, number(value), *rest] for name, value, _, *rest in rows[:-1]]
        table(["screen", "value", "wanted", "passed"], shown)
        return
    titles = ["screen", "value", f"{100 * found.confidence:g} % interval", "wanted", "passed"]
    intervals = [getattr(found, field) for _, _, field, *_ in rows]
    table(
        titles,
        [
            [name, number(value), "-" if interval is None else str(interval), *rest]
            for (name, value, _, *rest), interval in zip(rows, intervals, strict=True)
        ],
    )


def checkpoints(listed: Sequence[Checkpoint]) -> None:
    """One row per checkpoint."""
    columns(
        listed,
        ("name", "name"),
        ("weights", "weights"),
        ("state", lambda item: item.state.name.lower() + (", pinned" if item.pinned else "")),
        ("MiB", _mebibytes),
        ("family", lambda item: item.model.family if item.model else "-"),
        ("digest", lambda item: item.model.digest[:12] if item.model else "-"),
    )


def datasets(listed: Sequence[DatasetFile]) -> None:
    """One row per dataset."""
    kind = ("format", lambda one: one.format or "hdf5")
    columns(listed, ("name", "name"), kind, ("MiB", _mebibytes))
    other = [one.name for one in listed if one.format not in ("", "hdf5")]
    if other:
        note(f"servers read hdf5; of others: acpc anchors upload {other[0]} --task TASK")


def tasks(listed: Sequence[TaskSummary]) -> None:
    """One row per task."""
    titles = ["name", "columns", "frameskip", "what"]
    rows = [
        [item.name, f"{item.pixels}, {item.action}, {item.state}", str(item.frameskip)]
        if item.state
        else [item.name, "-", "-"]
        for item in listed
    ]
    whats = [item.description or "a task file; see docs/tasks.md" for item in listed]
    table(titles, [[*row, what] for row, what in zip(rows, whats, strict=True)], words=True)


def anchor_sets(listed: Sequence[AnchorSet]) -> None:
    """One row per anchor set."""
    columns(
        listed,
        ("digest", "digest"),
        ("anchors", "anchors"),
        ("frames", lambda item: f"{item.history} + {item.horizon}"),
        ("pixels", lambda item: f"{item.height} x {item.width}"),
        ("MiB", _mebibytes),
        ("made", lambda item: _day(item.create_time)),
        ("expires", lambda item: _day(item.expire_time)),
        ("what", lambda i: i.description or (i.source.dataset if i.source else "-")),
    )


def anchor_set(item: AnchorSet, contents: AnchorContents | None = None) -> None:
    """One anchor set, a line for each thing to know."""
    expires = f"{_day(item.expire_time)}, later when it is used"
    rows = {
        "digest": item.digest,
        "anchors": item.anchors,
        "frames": f"{item.history} of history, {item.horizon} of future",
        "pixels": f"{item.height} x {item.width}",
        "action block width": item.action_block_dim,
        "state width": item.state_dim,
        "size": f"{_mebibytes(item)} MiB",
        **_extras(item),
        **_contents(contents),
        "made": _day(item.create_time),
        "expires": "never" if item.expire_time is None else expires,
        "description": item.description or "-",
    }
    source = item.source
    if source is not None:
        drawn = f"{source.dataset}, task {source.task}, seed {source.seed}"
        rows["source"] = drawn + (", one per episode" if source.one_per_episode else "")
    for name, value in rows.items():
        line(f"{name:<20}{value}")


def _contents(held: AnchorContents | None) -> dict[str, Any]:
    if held is None:
        return {}
    shown = (f"{x} ({count})" for x, count in sorted(Counter(held.labels.tolist()).items()))
    far = {} if held.radius is None else {"states apart": number(held.radius)}
    return {"labels": ", ".join(shown), **far}


def _extras(item: AnchorSet) -> dict[str, Any]:
    groups, probes = (
        ", ".join(f"{group} ({count})" for group, count in found.items())
        for found in (item.groups, item.directions)
    )
    others = (f"{x.name} {x.shape[-1]} wide" for x in item.extras if "/" not in x.name)
    rows = {"views": groups, "directions": probes, "further arrays": ", ".join(others)}
    return {name: text for name, text in rows.items() if text}


def operations(listed: Sequence[Operation]) -> None:
    """One row per operation."""
    columns(
        listed,
        ("name", "name"),
        ("checkpoint", lambda item: item.checkpoint.name or "-"),
        ("state", lambda item: item.state.name.lower()),
        ("progress", _done),
        ("created", lambda i: _moment(i.create_time)),
    )


def _done(item: Operation) -> str:
    progress = item.progress
    return f"{progress.completed}/{progress.total} {progress.phase}".strip()


def _mebibytes(item: Checkpoint | AnchorSet | DatasetFile) -> str:
    return f"{item.size_bytes / 2**20:.1f}"


def _moment(at: datetime | None) -> str:
    return "-" if at is None else at.isoformat(timespec="seconds")


def _day(moment: datetime | None) -> str:
    return "-" if moment is None else moment.date().isoformat()


def _yes(passed: bool | None) -> str:
    return "-" if passed is None else "yes" if passed else "no"
