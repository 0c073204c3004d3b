"""How answers and errors look on a terminal. Answers go to stdout, all else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime

from acpc_client import (
    AnchorSet,
    Checkpoint,
    Operation,
    PairComparison,
    Perturbation,
    PoolCertificate,
    Receipt,
    Score,
    SelectionCertificate,
    ViewCertificate,
)
from acpc_client.errors import AcpcError
from rich.console import Console
from rich.table import Table


def line(text: str) -> None:
    """One plain line on stdout."""
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    """One plain line on stderr."""
    sys.stderr.write(f"{text}\n")


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


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on stdout; the first column is text, the others numbers."""
    drawn = Table()
    for index, column in enumerate(columns):
        if index == 0:
            drawn.add_column(column, no_wrap=True)
        else:
            drawn.add_column(column, justify="right", overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    Console(highlight=False, markup=False).print(drawn)


def number(value: float | None) -> str:
    """Six digits, or a dash for an absent value."""
    return "-" if value is None else f"{value:.6g}"


def comparison(answer: PairComparison, shifts: Sequence[Perturbation]) -> None:
    """One row per view."""
    with_drift = any(result.error_drift is not None for result in answer.results)
    columns = ["view", "draw", "ACPC_H", "ACPC_1", "encoder shift"]
    columns += ["error drift", "drift bound"] if with_drift else []
    rows = []
    for result in answer.results:
        view = str(shifts[result.spec_index]) if shifts else f"view {result.draw}"
        row = [view, str(result.draw), number(result.acpc), number(result.acpc_one_step)]
        row.append(number(result.encoder_shift))
        if with_drift:
            drift = result.error_drift
            row += ["-", "-"] if drift is None else [number(drift.drift), number(drift.bound)]
        rows.append(row)
    table(columns, rows)
    receipt(answer.receipt)


def pool(answer: PoolCertificate, shifts: Sequence[Perturbation]) -> None:
    """One row per shift, or one per view of the caller's own; then the severities that hold."""
    grouped: dict[str, list[ViewCertificate]] = {}
    for view in answer.views:
        name = str(shifts[view.spec_index]) if shifts else f"view {view.draw}"
        grouped.setdefault(name, []).append(view)
    with_elites = any(view.elite is not None for view in answer.views)
    columns = ["shift", "winner certified", "smallest margin", "winner changes"]
    columns += ["elite set certified", "smallest margin"] if with_elites else []
    rows = []
    for name, views in grouped.items():
        changes = sum(view.perturbed_winner != answer.clean_winner for view in views)
        row = [name, *_selection([view.top1 for view in views]), f"{changes}/{len(views)}"]
        if with_elites:
            row += _selection([view.elite for view in views if view.elite is not None])
        rows.append(row)
    table(columns, rows)
    for severity in answer.certified_severities:
        elite = f", elite set {number(severity.elite)}" if with_elites else ""
        top1 = number(severity.top1)
        line(f"largest certified severity of {severity.kind}: winner {top1}{elite}")
    receipt(answer.receipt)


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
    """The checkpoint beside its reference, then the verdict in words."""
    sides = [answer.checkpoint] + ([answer.reference] if answer.reference else [])
    columns = ["", *(side.checkpoint.name for side in sides)]
    columns[2:] = [f"{name} (reference)" for name in columns[2:]]
    rows = [
        ["IR raw", *(number(side.ir_raw) for side in sides)],
        ["SR", *(number(side.sr) for side in sides)],
        ["anchors", *(str(side.anchors) for side in sides)],
        ["eligible for SR", *(str(side.eligible) for side in sides)],
        ["skipped by SR", *(str(side.skipped) for side in sides)],
        ["median latent distance", *(number(side.median_latent_distance) for side in sides)],
    ]
    table(columns, rows)
    verdict = answer.verdict
    limits = verdict.thresholds
    ir = ["IR relative", number(verdict.ir_relative), f"<= {number(limits.ir)}"]
    sr = ["SR", number(answer.checkpoint.sr), f">= {number(limits.sr)}"]
    table(
        ["screen", "value", "wanted", "passed"],
        [
            [*ir, _yes(verdict.ir_passed)],
            [*sr, _yes(verdict.sr_passed)],
            ["score S", number(verdict.score), ">= 0", "-"],
            ["S above the reference's", number(verdict.delta_score), "-", "-"],
        ],
    )
    receipt(answer.receipt)
    line(f"{verdict.outcome.name}: {verdict.summary}")


def checkpoints(listed: Sequence[Checkpoint]) -> None:
    """One row per checkpoint."""
    rows = [
        [
            item.name,
            item.weights,
            item.state.name.lower() + (", pinned" if item.pinned else ""),
            f"{item.size_bytes / 2**20:.1f}",
            item.model.family if item.model else "-",
            item.model.digest[:12] if item.model else "-",
        ]
        for item in listed
    ]
    table(["name", "weights", "state", "MiB", "family", "digest"], rows)


def anchor_sets(listed: Sequence[AnchorSet]) -> None:
    """One row per anchor set."""
    rows = [
        [
            item.digest,
            str(item.anchors),
            f"{item.history} + {item.horizon}",
            f"{item.height} x {item.width}",
            f"{item.size_bytes / 2**20:.1f}",
            _day(item.create_time),
            _day(item.expire_time),
            item.description or (item.source.dataset if item.source else "-"),
        ]
        for item in listed
    ]
    columns = ["digest", "anchors", "frames", "pixels", "MiB", "made", "expires", "what"]
    table(columns, rows)


def anchor_set(item: AnchorSet) -> None:
    """One anchor set, a line for each thing to know."""
    source = item.source
    rows = [
        ["digest", item.digest],
        ["anchors", str(item.anchors)],
        ["frames", f"{item.history} of history, {item.horizon} of future"],
        ["pixels", f"{item.height} x {item.width}"],
        ["action block width", str(item.action_block_dim)],
        ["state width", str(item.state_dim)],
        ["size", f"{item.size_bytes / 2**20:.1f} MiB"],
        ["made", _day(item.create_time)],
        ["expires", f"{_day(item.expire_time)}, later when it is used"],
        ["description", item.description or "-"],
    ]
    if source is not None:
        drawn = f"{source.dataset}, task {source.task}, seed {source.seed}"
        rows.append(["source", drawn + (", one per episode" if source.one_per_episode else "")])
    if item.expire_time is None:
        rows[8][1] = "never"
    for name, value in rows:
        line(f"{name:<20}{value}")


def _day(moment: datetime | None) -> str:
    return "-" if moment is None else moment.date().isoformat()


def operations(listed: Sequence[Operation]) -> None:
    """One row per operation."""
    rows = [
        [
            item.name,
            item.checkpoint.name or "-",
            item.state.name.lower(),
            f"{item.progress.completed}/{item.progress.total} {item.progress.phase}".strip(),
            item.create_time.isoformat(timespec="seconds") if item.create_time else "-",
        ]
        for item in listed
    ]
    table(["name", "checkpoint", "state", "progress", "created"], rows)


def _yes(passed: bool | None) -> str:
    return "-" if passed is None else "yes" if passed else "no"
