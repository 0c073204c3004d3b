"""Fetches the pictures of the anchors that a report shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from acpc_client.errors import AcpcError

from acpc_lab.report.model import Preview, ReportData
from acpc_lab.report.worst import missing

if TYPE_CHECKING:
    from acpc_client import AcpcClient


def with_pictures(data: ReportData, client: AcpcClient) -> ReportData:
    """The report with pictures of its worst anchors, as far as the server still has them.

    A server that has none of them or cannot be reached does not fail the report: the page says
    why there are no pictures.
    """
    found = dict(data.previews)
    failed: list[AcpcError] = []
    wanted = missing(data)
    for name, indices in wanted.items():
        try:
            previews = client.preview_anchors(name, indices)
        except AcpcError as error:
            failed.append(error)
            if error.code == "UNAVAILABLE":
                break
            continue
        for item in previews:
            found[name, item.anchor] = Preview(item.clean, item.perturbed, item.partner)
    return data.with_(previews=found, previews_missing=_why(data, len(wanted), failed))


def _why(data: ReportData, wanted: int, failed: Sequence[AcpcError]) -> str:
    if not wanted:
        return data.previews_missing
    if not failed:
        return ""
    first = failed[0]
    if first.code == "UNAVAILABLE":
        return "no server could be reached when this page was made."
    some = "" if len(failed) == wanted else f"for {len(failed)} of {wanted} measurements, "
    return f"{some}the server answered {first.code}: {first.message}"
