"""From options to evidence: rows from a file, or checkpoints measured at a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc_client import Operation
from acpc_client.errors import AcpcError
from rich.console import Console

from acpc_lab.cli import render
from acpc_lab.cli.options import Exit, connect, reported
from acpc_lab.cli.study_output import check_out, file_source, finish
from acpc_lab.studies import (
    AnyStudy,
    Arrays,
    Ask,
    Cell,
    CheckpointRows,
    Evidence,
    Measured,
    Parameters,
    Rows,
    measure,
    read_cells,
    read_rows,
)

_SOURCE = "Where the rows come from: one of"
Checkpoints = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="CSV of checkpoints to measure at the server; needs --out.",
        rich_help_panel=_SOURCE,
    ),
]
FromRows = Annotated[
    Path | None,
    typer.Option(
        "--rows",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Rows that were measured before, as CSV or Parquet; needs no server.",
        rich_help_panel=_SOURCE,
    ),
]
_PROTOCOL = "Protocol (defaults: the paper's)"
Anchors = Annotated[
    int | None,
    typer.Option(min=1, help="Anchors of each dataset.", rich_help_panel=_PROTOCOL),
]
AnchorSeed = Annotated[
    int | None,
    typer.Option(min=0, help="Seed of the anchors [9101].", rich_help_panel=_PROTOCOL),
]


def protocol(help: str, minimum: float | None = None) -> Any:  # noqa: ANN401 - as typer.Option
    """An option of the protocol, whose default is the paper's."""
    return typer.Option(min=minimum, help=help, rich_help_panel=_PROTOCOL)


@dataclass(frozen=True)
class Command:
    """What the model-based commands have in common: where rows come from and where results go."""

    checkpoints: Path | None
    rows: Path | None
    anchors: int | None
    anchor_seed: int | None
    out: Path | None
    parquet: bool
    as_json: bool
    target: str
    timeout: float | None
    tls_ca: Path | None

    def run(
        self,
        study: AnyStudy,
        parameters: Parameters,
        ask: Ask[Any],
        gather: Callable[[Sequence[tuple[Cell, Any]]], tuple[Rows, Arrays]],
        check: Callable[[Sequence[Cell]], None] = lambda cells: None,
    ) -> None:
        """Makes the study from rows or from checkpoints, prints it, and writes the bundle.

        Args:
            study: Which.
            parameters: Of the summary.
            ask: What to measure on each checkpoint.
            gather: Answers to rows and arrays.
            check: Refuses checkpoints that the study cannot take.
        """
        if (self.checkpoints is None) == (self.rows is None):
            found = "neither" if self.rows is None else "both"
            raise typer.BadParameter(f"found {found} --checkpoints and --rows; give one of them")
        if self.rows is not None:
            with reported():
                check_out(self.out)
                read: Rows = read_rows(self.rows, study.rows)
                source, inputs = file_source(self.rows)
                self._finish(Evidence.of(study, read, parameters), [source], inputs)
            return
        if self.out is None:
            raise typer.BadParameter(
                "is missing; jobs are noted and results written there", param_hint="--out"
            )
        with reported():
            check_out(self.out)
            file = file_source(self.checkpoints)  # type: ignore[arg-type]
            listed = read_rows(self.checkpoints, CheckpointRows)  # type: ignore[arg-type]
            cells = read_cells(listed, anchors=self.anchors, anchor_seed=self.anchor_seed)
            check(cells)
        measured = self._measure(cells, ask, self.out)
        with reported():
            rows, arrays = gather([(item.cell, item.answer) for item in measured])
            evidence = Evidence.of(study, rows, parameters, arrays)
            self._finish(evidence, [file[0], *(item.source() for item in measured)], file[1])

    def _measure(self, cells: Sequence[Cell], ask: Ask[Any], out: Path) -> list[Measured[Any]]:
        progress = _Progress(len(cells))
        with connect(self.target, self.timeout, self.tls_ca) as client:
            try:
                return measure(client, cells, ask, out, progress, self.timeout)
            except KeyboardInterrupt as interrupt:
                render.note("interrupted: the jobs go on at the server")
                render.note("  give the same command again to go on")
                raise typer.Exit(Exit.INTERRUPTED) from interrupt
            except AcpcError as error:
                if not progress.failed:
                    raise
                render.error(error)
                render.note(f"  {progress.failed}; the same command does it again")
                raise typer.Exit(Exit.JOB_ENDED_BADLY) from error
            finally:
                progress.close()

    def _finish(
        self,
        evidence: Evidence[Any, Any, Any],
        sources: Sequence[dict[str, Any]],
        inputs: dict[str, bytes],
    ) -> None:
        finish(
            evidence,
            out=self.out,
            sources=sources,
            inputs=inputs,
            parquet=self.parquet,
            as_json=self.as_json,
        )


class _Progress:
    """A line on stderr that changes; where stderr is no terminal, a line per checkpoint's phase.

    Attributes:
        failed: Checkpoint and job that ended badly; empty: none did.
    """

    def __init__(self, total: int) -> None:
        console = Console(stderr=True, highlight=False, markup=False)
        self._total = total
        self._live = console.status("submitting") if console.is_terminal else None
        self._last = ""
        self.failed = ""
        if self._live is not None:
            self._live.start()

    def __call__(self, index: int, cell: Cell, operation: Operation) -> None:
        progress = operation.progress
        phase = progress.phase or operation.state.name.lower()
        at = f"{index + 1}/{self._total} {cell}: {phase}"
        if operation.error is not None:
            self.failed = f"{cell}: {operation.name} {operation.state.name.lower()}"
        if self._live is not None:
            done = f" {progress.completed}/{progress.total}" if progress.total else ""
            self._live.update(at + done)
        elif at != self._last:
            render.note(at)
        self._last = at

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
