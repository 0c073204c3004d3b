"""``acpc report``."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from acpc_client import DEFAULT_TARGET, Access, AcpcClient, RetryPolicy

from acpc_lab.cli import render
from acpc_lab.cli.options import (
    Caller,
    FamilyWiseOption,
    Timeout,
    reported,
    require_folder,
    target_option,
)
from acpc_lab.evidence import FamilyWise
from acpc_lab.tables import FORMATS

if TYPE_CHECKING:
    from acpc_lab.report import ReportData

_JOB = "operations/"
# Pictures are an addition: a server that is away must not hold the report up.
_PICTURES_TIMEOUT_S = 20.0
# Seconds between two looks at a sweep's folder, and after which its page loads itself again.
_LOOK_S, _REFRESH_S = 1.0, 10


def _label(help: str) -> Any:  # noqa: ANN401 - as typer.Option
    return typer.Option(help=help, rich_help_panel="Labels of a sweep")


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Which labels of a sweep mean something."""

    level: Annotated[str, _label("Label with the augmentation level.")] = ""
    run: Annotated[str, _label("Label with the training run.")] = ""
    task: Annotated[str, _label("Label with the task.")] = ""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the page shows beside the scores."""

    focus: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECKPOINT", help="Show this one's worst anchors; repeatable."),
    ] = None
    certified: Annotated[
        Path | None,
        typer.Option(help="CSV with the certified fraction of each checkpoint under each shift."),
    ] = None
    no_pictures: Annotated[
        bool, typer.Option("--no-pictures", help="Do not ask a server for pictures.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class ReportServer(Caller):
    """The server to ask: as the command line says, else as the sweep says."""

    target: Annotated[
        str | None, target_option(f"The server; else the sweep file's, else {DEFAULT_TARGET}.")
    ] = None
    timeout: Timeout = None

    def client(self, target: str | None, access: Access, *, fast: bool = False) -> AcpcClient:
        """A client; with ``fast``, one that soon gives up on a server that is away."""
        target = self.target or target or DEFAULT_TARGET
        known: Access = {**access, **self.access()}
        if not fast:
            return AcpcClient(target, **known, timeout=self.timeout)
        timeout = self.timeout or _PICTURES_TIMEOUT_S
        return AcpcClient(target, **known, timeout=timeout, retry=RetryPolicy(attempts=1))


class Found(NamedTuple):
    """What sources hold, and the server that they name."""

    data: ReportData
    target: str | None = None
    access: Access = Access()


def report(
    *,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="A sweep file or its folder; or jobs (operations/ID); or files with scores.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", dir_okay=False, help="The HTML file to write.")
    ] = Path("report.html"),
    figures: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Also write figures here, as SVG, PNG and CSV."),
    ] = None,
    title: Annotated[str, typer.Option(help="Heading [the source's name].")] = "",
    shift: Annotated[
        str, typer.Option(help="Name of the shift, for older files, which lack it.")
    ] = "",
    family_wise: FamilyWiseOption = FamilyWise.HOLM,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Write it again whenever something of a sweep or a watch changes."
        ),
    ] = False,
    shown: Shown,
    labels: Labels,
    server: ReportServer,
) -> None:
    """Writes the report of a sweep or of jobs: one HTML file that needs no network.

    A sweep may be unfinished, and its report is made from its folder alone; a server is asked for
    the pictures of the anchors that fail worst, and done without where there is none.

    **Examples**

        acpc report noise.sweep --output noise.html --figures figures/
        acpc report operations/5f0c --output job.html
        acpc report before.npz after.npz --output compared.html

    While a sweep or `acpc watch` goes on, beside it, until all is measured or Ctrl-C; the page
    loads itself again, and has its pictures at the end:

        acpc report noise.sweep --output noise.html --follow
    """
    for path in (output, figures):
        require_folder(path)
    if follow:
        _follow(sources, output, lambda: _read(sources, title, shift, labels, server).data)
    with reported():
        from acpc_lab import report as reports  # noqa: PLC0415  slow
        from acpc_lab.factors import read_certified  # noqa: PLC0415

        found = _read(sources, title, shift, labels, server)
        data = found.data.with_(focus=tuple(shown.focus or ()), family_wise=family_wise)
        if shown.certified is not None:
            data = reports.with_certified(data, read_certified(shown.certified))
        if not shown.no_pictures and reports.missing(data):
            with server.client(found.target, found.access, fast=True) as client:
                data = reports.with_pictures(data, client)
        reports.write_report(data, output, figures=figures)
    _tell(data, output, no_pictures=shown.no_pictures)
    if figures is not None:
        render.line(f"{figures}: {len(list(figures.iterdir()))} files")


def _follow(sources: list[str], output: Path, read: Callable[[], ReportData]) -> None:
    """Writes the page at every change, until nothing is pending or the user has seen enough."""
    if len(sources) != 1 or _kind(sources[0]) != "sweeps":
        raise typer.BadParameter("wanted one sweep or watch", param_hint="--follow")
    from acpc_lab import report as reports  # noqa: PLC0415  slow
    from acpc_lab.sweeps import SweepResults  # noqa: PLC0415

    folder, seen = SweepResults.open(sources[0]).folder, None
    # A watch waits for the next checkpoint when all are measured.
    endless = folder.suffix == ".watch"
    with suppress(KeyboardInterrupt), reported():
        while True:
            found = _files(folder)
            if found != seen:
                seen, data = found, read()
                reports.write_report(data.with_(refresh=_REFRESH_S), output)
                done = len(data.cells) - data.pending
                render.note(f"{output}: {done} of {len(data.cells)} measured")
                if not data.pending and not endless:
                    return
            time.sleep(_LOOK_S)


def _files(folder: Path) -> list[tuple[Path, int]]:
    """Every file below a folder and when it was written; some come and go meanwhile."""
    found = []
    for path in sorted(folder.rglob("*")):
        with suppress(FileNotFoundError):
            found.append((path, path.stat().st_mtime_ns))
    return found


def _tell(data: ReportData, output: Path, *, no_pictures: bool) -> None:
    """What was written, and what is missing from it."""
    size = output.stat().st_size / 1e6
    count = len(data.cells)
    pending = f", {data.pending} pending" if data.pending else ""
    render.line(f"{output}: {count} measurement{'' if count == 1 else 's'}{pending}, {size:.1f} MB")
    if data.pending:
        render.note(
            "what is pending is missing from it: end the jobs (acpc sweep run), report again"
        )
    if data.previews_missing and not no_pictures:
        render.note(f"no pictures: {data.previews_missing}")


def _read(
    sources: list[str], title: str, shift: str, labels: Labels, server: ReportServer
) -> Found:
    from acpc_lab import report as reports  # noqa: PLC0415  slow to import
    from acpc_lab.sweeps import SweepResults  # noqa: PLC0415

    kinds = {_kind(source) for source in sources}
    if len(kinds) > 1:
        raise typer.BadParameter(f"found {' and '.join(sorted(kinds))}, wanted one kind of source")
    match kinds.pop():
        case "jobs":
            with server.client(None, {}) as client:
                return Found(reports.from_operations(client, sources, title=title))
        case "files with scores":
            return Found(reports.from_files(sources, shift=shift, title=title))
    if len(sources) > 1:
        raise typer.BadParameter(f"found {len(sources)} sweeps, wanted one")
    results = SweepResults.open(sources[0])
    names = reports.LabelNames(labels.level, labels.run, labels.task)
    data = reports.from_sweep(results, labels=names, title=title)
    return Found(data, *reports.server_of(results))


def _kind(source: str) -> str:
    if source.startswith(_JOB):
        return "jobs"
    if not Path(source).exists():
        raise typer.BadParameter(f"{source} is no file and no folder; jobs are named {_JOB}ID")
    scores = Path(source).is_file() and Path(source).suffix in FORMATS
    return "files with scores" if scores else "sweeps"
