"""The report of a sweep or a job: one HTML file that needs no network, and its figures as files.

    data = from_sweep("noise.sweep")
    with AcpcClient("gpu-host:50051") as client:
        data = with_pictures(data, client)
    write_report(data, "report.html", figures="figures")

Needs the lab's extras.
"""

from __future__ import annotations

from pathlib import Path

from acpc_lab.report.headline import claims, failing
from acpc_lab.report.model import ReportData, counted
from acpc_lab.report.page import export_figures, render
from acpc_lab.report.sources import from_files, from_operations, from_sweep
from acpc_lab.report.worst import missing, with_pictures
from acpc_lab.tables import write_whole

__all__ = [
    "ReportData", "claims", "export_figures", "failing", "from_files", "from_operations",
    "from_sweep", "render", "with_pictures", "write_report",
]  # fmt: skip


def write_report(data: ReportData, path: str | Path, *, figures: str | Path | None = None) -> None:
    """Writes the report and, with ``figures``, its figures as SVG and PNG into a folder.

    Raises FailedPrecondition: The extra ``[report]`` is not installed; OSError: A file cannot be
    written.
    """
    write_whole(Path(path), render(data).encode(errors="replace"))
    if figures is not None:
        export_figures(data, figures)
