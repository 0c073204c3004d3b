"""Prints answers and errors. Answers go to stdout, all else to stderr."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import compress
from operator import itemgetter
from typing import Any

from acpc.console import Console
from acpc.contract import TITLES, Record, Tabular, beside, cell
from acpc_client import (
    AnchorContents,
    AnchorSet,
    Checkpoint,
    DatasetAnchors,
    DatasetFile,
    DrawsBound,
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
    Verdict,
    ViewCertificate,
)
from acpc_client.errors import AcpcError

from acpc_lab.cli.table import WIDE, Column, Format, prose, show


def console() -> Console:
    """Makes a console on stderr, for progress, which prints names letter by letter."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def line(text: str) -> None:
    """Writes one plain line on stdout."""
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    """Writes one plain line on stderr."""
    sys.stderr.write(f"{text}\n")


def notes(sentences: Iterable[str], kind: str = "warning") -> None:
    """Writes each sentence to stderr, a line each, after its kind (``note``, ``warning``)."""
    for sentence in sentences:
        note(f"{kind}: {sentence}")


def presence(away: AcpcError | None) -> None:
    """Writes why the server is away, or that it is back."""
    note(away.message if away else "the server is back")


def error(failure: AcpcError) -> None:
    """Prints code, message, each field violation on a line, and the request id."""
    note(f"error: {failure.code}: {failure.message}")
    for violation in failure.violations:
        words = f"{violation.field}: {violation.description}"
        if words != failure.message:
            note(f"  {words}")
    if failure.reason == "WEIGHTS_AMBIGUOUS":
        note("  choose with --weights-file, for the reference with --reference-weights-file")
    if failure.retry_after is not None:
        note(f"  try again in {failure.retry_after:.1f} s")
    if failure.request_id:
        note(f"  request id: {failure.request_id}")


def result(answer: object, *, whole: bool = True) -> None:
    """The document of a result, of an operation with an answer, or of an answer.

    Not ``whole``: a score without the values of every anchor, which are thousands of lines.
    """
    document = Result.of(answer).to_dict()
    line(json.dumps(document if whole else _brief(document), indent=2, allow_nan=False))


def _brief(value: Any) -> Any:  # noqa: ANN401 - a plain value
    if not isinstance(value, dict):
        return value
    return {name: _brief(held) for name, held in value.items() if name != "anchor_values"}


def listing(
    items: Sequence[Any],
    columns: Sequence[Column],
    form: Format,
    plain: Callable[[Any], object] = Record.to_dict,
) -> None:
    """Items as a table, as their names (its first column), or as a JSON list of ``plain``."""
    match form:
        case Format.JSON:
            line(json.dumps([plain(item) for item in items], indent=2))
        case Format.NAME:
            for item in items:
                line(columns[0].cell(item))
        case _ if not items:
            note("there are none")
        case _:
            show(columns, items, wide=form is Format.WIDE)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table of text on stdout."""
    show([Column(title, itemgetter(at)) for at, title in enumerate(titles)], rows)


def columns(items: Iterable[object], *wanted: tuple[Any, ...]) -> None:
    """A table of items on stdout; each column as ``Column`` has it."""
    show([Column(*each) for each in wanted], items)


def comparison(answer: PairComparison, shifts: Sequence[Perturbation]) -> None:
    """One row per view."""
    observed = any(result.error_drift is not None for result in answer.results)
    columns(
        answer.results,
        ("view", _named(shifts)),
        ("draw", "draw"),
        ("ACPC_H", "acpc"),
        ("ACPC_1", "acpc_one_step"),
        ("encoder shift", "encoder_shift"),
        *(_DRIFT if observed else ()),
    )
    receipt(answer.receipt)


_DRIFT = (
    ("error drift", lambda result: result.error_drift and result.error_drift.drift),
    ("drift bound", lambda result: result.error_drift and result.error_drift.bound),
)


def _named(shifts: Sequence[Perturbation]) -> Callable[[Any], str]:
    """A function that names a view: by its shift, or by its number among the caller's own."""
    return lambda view: str(shifts[view.spec_index]) if shifts else f"view {view.draw}"


def pool(answer: PoolCertificate, shifts: Sequence[Perturbation]) -> None:
    """One row per shift, or one per view of the caller's own; then the severities that hold."""
    grouped: dict[str, list[ViewCertificate]] = {}
    for view in answer.views:
        grouped.setdefault(_named(shifts)(view), []).append(view)
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

    def both(what: str, top1: float | None, elite: float | None) -> None:
        line(f"{what}: winner {cell(top1)}{f', elite set {cell(elite)}' * with_elites}")

    if answer.clean_gaps is not None:
        gaps = answer.clean_gaps
        both("clean gap that the bounds must not close", gaps.top1, gaps.elite)
    for held in answer.certified_severities:
        both(f"largest certified severity of {held.kind}", held.top1, held.elite)
    _may_change("winner", answer.top1_may_change, shifts)
    _may_change("elite set", answer.elite_may_change, shifts)
    receipt(answer.receipt)


def _may_change(what: str, bounds: Sequence[DrawsBound], shifts: Sequence[Perturbation]) -> None:
    """One line per random shift: how often its draws may change the choice."""
    for bound in bounds:
        line(f"{what}, {shifts[bound.spec_index]}: {bound}")


def _selection(certificates: Sequence[SelectionCertificate]) -> list[str]:
    certified = sum(certificate.certified for certificate in certificates)
    smallest = min((certificate.margin for certificate in certificates), default=None)
    return [f"{certified}/{len(certificates)}", cell(smallest)]


def paired_plans(answer: PairedPlans, shifts: Sequence[Perturbation]) -> None:
    """One row per view; then the smallest gaps of the clean run."""

    def iterations(view: PairedPlan) -> str:
        return f"{sum(x.elite.certified for x in view.iterations)}/{len(view.iterations)}"

    columns(
        answer.views,
        ("view", _named(shifts)),
        ("draw", "draw"),
        ("plan certified", "certified"),
        ("iterations certified", iterations),
        ("elite sets part at", "first_divergence"),
        ("selection regret", "selection_regret"),
    )
    if answer.clean_gaps:
        top1 = cell(min(gaps.top1 for gaps in answer.clean_gaps))
        elite = cell(min(gaps.elite for gaps in answer.clean_gaps if gaps.elite is not None))
        line(f"smallest clean gap of an iteration: winner {top1}, elite set {elite}")
    _may_change("plan", answer.plan_may_change, shifts)
    receipt(answer.receipt)


def receipt(proof: Receipt) -> None:
    """Prints the digests, code version and device that the numbers come from."""
    line(
        f"checkpoint {proof.checkpoint_digest[:12]}  anchors {proof.anchors_digest[:12]}  "
        f"acpc {proof.code_version}  {proof.numeric_mode.name.lower()} on {proof.device}"
    )
    if proof.weights_read:
        line(f"weights: {proof.weights_read} (acpc-server import takes others: --weights-key)")
    if proof.reference_weights_read:
        line(f"weights of the reference: {proof.reference_weights_read}")


def tabular(answer: Tabular) -> None:
    """Prints an answer's table, and what its names stand for."""
    _shown(answer.shown(), answer.meaning())


def _shown(held: Mapping[str, Iterable[object]], meaning: str) -> None:
    table(list(held), zip(*(map(cell, column) for column in held.values()), strict=True))
    prose(meaning)


def near(verdict: Verdict, name: str, number: float | None) -> str:
    """A number of the screen, on its side of its threshold also where digits are left out."""
    return cell(number) if number is None else beside(number, verdict.limit(name), ".3f")


def asked(job: Operation, *, shifts: int = 1) -> str:
    """What a scoring job was asked, in a line; empty where the server does not say."""
    request = job.request
    if request is None:
        return ""
    against = f" against {request.reference.name}" if request.reference else ""
    shift = f"{shifts} shifts" if shifts > 1 else str(request.shift)
    caller = f", by {job.caller}" if job.caller else ""
    return f"asked: {request.checkpoint.name}{against} under {shift}, on {_source(job)}{caller}"


def _source(job: Operation) -> str:
    """Where the anchors of a scoring job come from."""
    source = job.request and job.request.anchors
    if isinstance(source, DatasetAnchors):
        return f"{source.dataset}, task {source.task}"
    return f"anchor set {source[:_DIGITS]}" if source else "-"


_RARE = [TITLES[name] for name in ("delta_score", "rounding_floor", "eligible")]
"""Rows of a score that are shown with ``-o wide`` alone."""


def score(answer: Score, *, asked: str = "", wide: bool = False) -> None:
    """The verdict in words, what was asked, then the checkpoint beside its reference."""
    said, colon, why = answer.verdict.summary.partition(": ")
    why = why if colon and " " not in said else answer.verdict.summary  # "Passes: " once
    prose(f"{answer.verdict.outcome.name}: {why}")
    if answer.certainty:
        prose(f"how sure: {answer.certainty}")
    if asked:
        prose(asked)
    held = answer.shown(wide=wide)
    kept = [wide or name not in _RARE for name in held[""]]
    _shown({title: compress(column, kept) for title, column in held.items()}, answer.meaning())
    receipt(answer.receipt)
    for sentence in (*answer.fit_notes, *answer.rounding_notes):
        line(f"warning: {sentence}")
    notes(answer.evidence.notes if answer.evidence else ())


def _mebibytes(item: Checkpoint | AnchorSet | DatasetFile) -> str:
    return f"{item.size_bytes / 2**20:.1f}"


def _moment(at: datetime | None) -> str:
    return "-" if at is None else f"{at.astimezone(UTC):%Y-%m-%dT%H:%MZ}"


def _day(moment: datetime | None) -> str:
    return "-" if moment is None else moment.date().isoformat()


def _done(item: Operation) -> str:
    progress = item.progress
    return f"{progress.completed}/{progress.total} {progress.phase}".strip()


_DIGITS = 12
CHECKPOINTS = (
    Column("name", "name"),
    Column("state", lambda x: x.state.name.lower() + (", pinned" if x.pinned else ""), rank=1),
    Column("weights", "weights", rank=2),
    Column("MiB", _mebibytes, rank=3),
    Column("family", lambda item: item.model.family if item.model else "-", rank=4),
    Column("digest", lambda x: x.model.digest if x.model else "-", rank=5, short=_DIGITS),
)
DATASETS = (
    Column("name", "name"),
    Column("format", lambda one: one.format or "hdf5", rank=1),
    Column("MiB", _mebibytes, rank=2),
)
TASKS = (
    Column("name", "name"),
    Column("columns", lambda x: f"{x.pixels}, {x.action}, {x.state}" if x.state else "-", rank=2),
    Column("frameskip", lambda x: str(x.frameskip) if x.state else "-", rank=3),
    Column("what", lambda item: item.description or "a task file; see docs/tasks.md", rank=1),
)
ANCHOR_SETS = (
    Column("digest", "digest", short=_DIGITS),
    Column("what", lambda i: i.description or (i.source.dataset if i.source else "-"), rank=1),
    Column("anchors", "anchors", rank=2),
    Column("frames", lambda item: f"{item.history} + {item.horizon}", rank=4),
    Column("pixels", lambda item: f"{item.height} x {item.width}", rank=6),
    Column("MiB", _mebibytes, rank=7),
    Column("made", lambda item: _day(item.create_time), rank=3),
    Column("expires", lambda item: _day(item.expire_time), rank=5),
)
OPERATIONS = (
    Column("name", "name", short=len("operations/") + 8),
    Column("checkpoint", lambda item: item.checkpoint.name or "-", rank=1),
    Column("shift", lambda item: item.request.shift if item.request else "-", rank=2),
    Column("state", lambda item: item.state.name.lower()),
    Column("progress", _done, rank=4),
    Column("created", lambda item: _moment(item.create_time), rank=3),
    Column("caller", lambda item: item.caller or "-", rank=5),
    Column("anchors from", _source, rank=WIDE),
    Column("ended", lambda item: _moment(item.end_time), rank=WIDE),
    Column("attempts", "attempts", rank=WIDE),
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
    far = {} if held.radius is None else {"states apart": cell(held.radius)}
    return {"labels": ", ".join(shown), **far}


def _extras(item: AnchorSet) -> dict[str, Any]:
    groups, probes = (
        ", ".join(f"{group} ({count})" for group, count in found.items())
        for found in (item.groups, item.directions)
    )
    others = (f"{x.name} {x.shape[-1]} wide" for x in item.extras if "/" not in x.name)
    rows = {"views": groups, "directions": probes, "further arrays": ", ".join(others)}
    return {name: text for name, text in rows.items() if text}
