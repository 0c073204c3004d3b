"""``acpc report``."""

from pathlib import Path
from typing import Annotated

import typer
from acpc_client import RetryPolicy
from acpc_client.errors import FailedPrecondition

from acpc_lab import report as reports
from acpc_lab.cli import render
from acpc_lab.cli.connection import Server
from acpc_lab.cli.options import CorrectionOption, job_name, out_option, require_folder
from acpc_lab.evidence import Correction
from acpc_lab.report import ReportData
from acpc_lab.sweeps import SweepResults
from acpc_lab.tables import FORMATS

_JOB = "operations/"
# Pictures are an addition: a server that is away must not hold the report up.
_PICTURES_TIMEOUT_S = 20.0


class Report(Server):
    """Writes the report of a sweep or of jobs: one HTML file that needs no network.

    A sweep may be unfinished, and its report is made from its folder alone; a server is asked for
    the pictures of the anchors that fail worst, and done without where there is none.

    **Examples**

        acpc report noise.sweep --out noise.html --figures figures/
        acpc report operations/5f0c9a --out job.html
        acpc report before.npz after.npz --out compared.html

    Attributes:
        sources: A sweep file or its folder; or jobs (operations/ID, the ID or its beginning, a
            request id, latest); or files of `acpc score --out`.
        figures: Also write figures here, as SVG and PNG.
        title: Heading [the source's name].
        no_pictures: Do not ask a server for pictures.
        label: Of a sweep: the label that is the augmentation level, the training run or the task;
            repeatable.
    """

    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...")]
    out: Annotated[Path, out_option("The HTML file to write.", (".html", ".htm"))] = Path(
        "report.html"
    )
    figures: Annotated[Path | None, typer.Option(file_okay=False)] = None
    title: str = ""
    correction: CorrectionOption = Correction.HOLM
    no_pictures: bool = False
    label: Annotated[list[str] | None, typer.Option(metavar="level|run|task=LABEL")] = None

    def __call__(self) -> None:
        require_folder(self.figures)
        data = self._read().with_(correction=self.correction)
        if not self.no_pictures and reports.missing(data):
            timeout = self.timeout or _PICTURES_TIMEOUT_S
            with self.client(timeout=timeout, retry=RetryPolicy(attempts=1)) as client:
                data = reports.with_pictures(data, client)
        try:
            reports.write_report(data, self.out, figures=self.figures)
        except OSError as error:
            raise FailedPrecondition(f"cannot write {self.out}: {error.strerror}") from error
        count, size = reports.counted(len(data.cells), "measurement"), self.out.stat().st_size / 1e6
        pending = f", {data.pending} pending" if data.pending else ""
        render.line(f"{self.out}: {count}{pending}, {size:.1f} MB")
        if data.pending:
            render.note(
                "what is pending is missing from it: end the jobs (acpc sweep run), report again"
            )
        if data.previews_missing and not self.no_pictures:
            render.note(f"no pictures: {data.previews_missing}")
        if self.figures is not None:
            render.line(f"{self.figures}: {len(list(self.figures.iterdir()))} files")

    def _read(self) -> ReportData:
        kinds = sorted({_kind(source) for source in self.sources})
        if len(kinds) > 1:
            raise typer.BadParameter(f"found {' and '.join(kinds)}, wanted one kind of source")
        if kinds == ["jobs"]:
            with self.client() as client:
                jobs = [job_name(source) for source in self.sources]
                return reports.from_operations(client, jobs, title=self.title)
        if kinds == ["files with scores"]:
            return reports.from_files(self.sources, title=self.title)
        if len(self.sources) > 1:
            raise typer.BadParameter(f"found {len(self.sources)} sweeps, wanted one")
        results = SweepResults.open(self.sources[0])
        labels = dict(text.partition("=")[::2] for text in self.label or ())
        return reports.from_sweep(results, labels=labels, title=self.title)


def _kind(source: str) -> str:
    if source.startswith(_JOB):
        return "jobs"
    if not Path(source).exists():
        if Path(source).suffix or Path(source).name != source:
            raise typer.BadParameter(f"{source} is no file and no folder; jobs are named {_JOB}ID")
        return "jobs"
    scores = Path(source).is_file() and Path(source).suffix in FORMATS
    return "files with scores" if scores else "sweeps"
