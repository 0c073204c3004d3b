"""``acpc report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from acpc_client import DEFAULT_TARGET, AcpcClient, RetryPolicy, Tls

from acpc_lab.cli import render
from acpc_lab.cli.options import Timeout, TlsCa, reported

if TYPE_CHECKING:
    from acpc_lab.report import LabelNames, ReportData

_JOB = "operations/"
_SCORES = (".npz", ".parquet", ".json")
# Pictures are an addition: a server that is away must not hold the report up.
_PATIENCE_S = 20.0

Target = Annotated[
    str | None,
    typer.Option(
        envvar="ACPC_TARGET",
        metavar="HOST:PORT",
        help=f"The server; else the sweep file's, else {DEFAULT_TARGET}.",
        rich_help_panel="Server",
    ),
]
_LABELS = "Labels of a sweep"


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
    focus: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECKPOINT", help="Show this one's worst anchors; repeatable."),
    ] = None,
    shift: Annotated[
        str, typer.Option(help="Name of the shift, for files: a score does not tell it.")
    ] = "",
    no_pictures: Annotated[
        bool, typer.Option("--no-pictures", help="Do not ask a server for pictures.")
    ] = False,
    level: Annotated[
        str, typer.Option(help="Label with the augmentation level.", rich_help_panel=_LABELS)
    ] = "",
    run: Annotated[
        str, typer.Option(help="Label with the training run.", rich_help_panel=_LABELS)
    ] = "",
    task: Annotated[str, typer.Option(help="Label with the task.", rich_help_panel=_LABELS)] = "",
    target: Target = None,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
) -> None:
    """Writes the report of a sweep or of jobs: one HTML file that needs no network.

    A sweep may be unfinished, and its report is made from its folder alone; a server is asked for
    the pictures of the anchors that fail worst, and done without where there is none.

    **Examples**

        acpc report noise.sweep --output noise.html --figures figures/
        acpc report operations/5f0c --output job.html
        acpc report before.npz after.npz --shift blur:15 --output compared.html
    """
    for path in (output, figures):
        if path is not None and not path.parent.is_dir():
            raise typer.BadParameter(f"the folder {path.parent} does not exist")
    with reported():
        from acpc_lab.report import LabelNames, write_report  # noqa: PLC0415  slow to import

        tls = None if tls_ca is None else Tls(ca_file=tls_ca)
        place = _Place(target, tls, timeout)
        data = _read(sources, title, shift, LabelNames(level, run, task), place)
        data = data.with_(focus=tuple(focus or ()))
        if not no_pictures:
            data = _illustrated(data, place)
        write_report(data, output, figures=figures)
    size = output.stat().st_size / 1e6
    count = len(data.cells)
    render.line(f"{output}: {count} measurement{'' if count == 1 else 's'}, {size:.1f} MB")
    if data.previews_missing and not no_pictures:
        render.note(f"no pictures: {data.previews_missing}")
    if figures is not None:
        render.line(f"{figures}: {len(list(figures.iterdir()))} files")


class _Place:
    """The server to ask: as the command line says, else as the sweep says."""

    def __init__(self, target: str | None, tls: Tls | None, timeout: float | None) -> None:
        self.target = target
        self.tls = tls
        self.timeout = timeout

    def client(self, *, patient: bool) -> AcpcClient:
        target = self.target or DEFAULT_TARGET
        if patient:
            return AcpcClient(target, tls=self.tls, timeout=self.timeout)
        timeout = self.timeout or _PATIENCE_S
        return AcpcClient(target, tls=self.tls, timeout=timeout, retry=RetryPolicy(attempts=1))


def _read(
    sources: list[str], title: str, shift: str, labels: LabelNames, place: _Place
) -> ReportData:
    from acpc_lab.report import from_files, from_operations, from_sweep  # noqa: PLC0415

    kinds = {_kind(source) for source in sources}
    if len(kinds) > 1:
        raise typer.BadParameter(f"found {' and '.join(sorted(kinds))}, wanted one kind of source")
    match kinds.pop():
        case "jobs":
            with place.client(patient=True) as client:
                return from_operations(client, sources, title=title)
        case "files with scores":
            return from_files(sources, shift=shift, title=title)
    if len(sources) > 1:
        raise typer.BadParameter(f"found {len(sources)} sweeps, wanted one")
    from acpc_lab.report import server_of  # noqa: PLC0415
    from acpc_lab.sweeps import SweepResults  # noqa: PLC0415

    results = SweepResults.open(sources[0])
    target, tls = server_of(results)
    place.target, place.tls = place.target or target, place.tls or tls
    return from_sweep(results, labels=labels, title=title)


def _kind(source: str) -> str:
    if source.startswith(_JOB):
        return "jobs"
    if not Path(source).exists():
        raise typer.BadParameter(f"{source} is no file and no folder; jobs are named {_JOB}ID")
    scores = Path(source).is_file() and Path(source).suffix in _SCORES
    return "files with scores" if scores else "sweeps"


def _illustrated(data: ReportData, place: _Place) -> ReportData:
    from acpc_lab.report import missing, with_pictures  # noqa: PLC0415

    if not missing(data):
        return data
    with place.client(patient=False) as client:
        return with_pictures(data, client)
