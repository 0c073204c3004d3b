"""``acpc score`` with several shifts: one table, and what is sure of all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer
from acpc_client import AcpcClient, Operation, Outcome, Perturbation

from acpc_lab.cli import render
from acpc_lab.cli.gates import case_of, publish, reason
from acpc_lab.cli.options import Exit, Followed, Gate
from acpc_lab.cli.table import prose


def finish_all(
    client: AcpcClient,
    shifts: Sequence[Perturbation],
    ended: Sequence[Operation],
    form: Followed,
    gate: Gate,
    junit: Path | None,
) -> None:
    """Prints the scores of one checkpoint under several shifts, and exits accordingly.

    Raises typer.Exit: Always; a gate that is confident goes by verdicts corrected for their number.
    """
    from acpc_lab.report import claims, failing, from_operations  # noqa: PLC0415  slow to import

    for job in ended:
        if job.error is not None:
            render.error(job.error)
            render.note(f"  {job.name} {job.state.name.lower()}")
        if form.json:
            render.result(job)
    if any(job.error is not None for job in ended):
        raise typer.Exit(Exit.JOB_ENDED_BADLY)
    data = from_operations(client, ended)
    named = zip(data.cells, map(str, shifts), strict=True)
    data = data.with_(cells=tuple(replace(cell, shift=shift) for cell, shift in named))
    found: list[Outcome] = []
    cases, rows = [], []
    for cell in data.cells:
        if cell.score is None:
            continue
        sure = cell.among.outcome if cell.among else None
        outcome = sure if gate is Gate.CONFIDENT and sure else cell.score.gated(gate)
        found.append(outcome)
        cases.append(case_of(f"{cell.name} under {cell.shift}", outcome, reason(cell.score, gate)))
        relative = cell.score.verdict.ir_relative
        numbers = [
            "-" if relative is None else f"{relative:.3f}",
            f"{cell.score.checkpoint.sr:.3f}",
        ]
        verdicts = [cell.score.verdict.outcome.name, sure.name if sure else "-"]
        rows.append([cell.shift, *numbers, *verdicts])
    if not form.json:
        render.table(("shift", "relative IR", "SR", "verdict", "sure"), rows)
        for sentence in [*claims(data), *failing(data)]:
            prose(sentence)
    publish("acpc score", cases, junit)
    if Outcome.FAILED in found:
        raise typer.Exit(Exit.SCREEN_FAILED)
    raise typer.Exit(Exit.UNDECIDED if Outcome.UNDECIDED in found else Exit.OK)
