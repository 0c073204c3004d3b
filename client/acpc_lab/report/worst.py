"""Chooses the checkpoints and anchors that fail worst, and fetches their pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from acpc_client import AnchorValues, Outcome, Score
from acpc_client.errors import AcpcError

from acpc_lab.report.measures import margin_of
from acpc_lab.report.model import Measurement, Preview, ReportData

if TYPE_CHECKING:
    from acpc_client import AcpcClient

EACH = 3
"""Anchors of either kind that are shown of one cell."""

MAX_CELLS = 6


Chosen = tuple[Measurement, str]


@dataclass(frozen=True)
class WorstAnchor:
    """One anchor of a cell that fails, or comes closest to failing.

    Attributes:
        distance: D; None where the anchor has no partner.
        wanted: What D must exceed.
    """

    index: int
    identity: int
    radius: float
    distance: float | None
    wanted: float
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Focus:
    """A cell whose worst anchors are shown, and why it was chosen.

    Attributes:
        again: Identities of those that an earlier cell shows under the same kind of shift.
    """

    cell: Measurement
    why: str
    anchors: tuple[WorstAnchor, ...]
    again: tuple[int, ...] = ()


def focus(data: ReportData) -> list[Focus]:
    """The cells to look at closely, with their worst anchors.

    Of every kind of shift, at whatever level, the cell that fails by most and the one that fails
    by least (references aside, unless there is nothing else); where none fails, the one that passes
    by least; six in all. With ``data.focus``, the cells of those checkpoints instead. Under one
    kind of shift an anchor is shown once.
    """
    if data.focus:
        chosen = [(cell, "asked for") for cell in data.cells if cell.name in data.focus]
    else:
        kinds: dict[str, list[Measurement]] = {}
        for cell in data.cells:
            kinds.setdefault(_kind(cell), []).append(cell)
        chosen = _first([_extremes(cells) for cells in kinds.values()], MAX_CELLS)
    found, seen = [], set[tuple[str, str, int]]()
    for cell, why in chosen:
        values = cell.score.checkpoint.anchor_values if cell.score else None
        if cell.score is None or values is None:
            continue
        anchors, again = [], []
        for anchor in worst_anchors(cell.score, values, margin_of(cell)):
            key = (_kind(cell), cell.task, anchor.identity)
            if key in seen:
                again.append(anchor.identity)
            else:
                anchors.append(anchor)
            seen.add(key)
        found.append(Focus(cell, why, tuple(anchors), tuple(again)))
    return found


def _kind(cell: Measurement) -> str:
    """The shift without its level."""
    return cell.shift.rpartition(":")[0] or cell.shift


def _first(by_kind: Sequence[Sequence[Chosen]], most: int) -> list[Chosen]:
    """The first of every kind, then the second ones, while there is room; kinds in order."""
    places = [(rank, row) for row, chosen in enumerate(by_kind) for rank in range(len(chosen))]
    kept = sorted(places)[:most]
    return [by_kind[row][rank] for rank, row in sorted(kept, key=lambda place: place[::-1])]


def _extremes(cells: Sequence[Measurement]) -> list[Chosen]:
    known = [cell for cell in cells if cell.score and cell.score.checkpoint.anchor_values]
    known = [cell for cell in known if not cell.is_reference] or known
    if len(known) < 2:
        return [(cell, "") for cell in known]
    failing = sorted((c for c in known if c.outcome is not Outcome.PASSED), key=_score)
    if not failing:
        return [(min(known, key=_score), "passes by the least")]
    if len(failing) == 1:
        return [(failing[0], "the only one that fails")]
    return [(failing[0], "fails by the most"), (failing[-1], "fails by the least")]


def _score(cell: Measurement) -> float:
    """S; without a reference, SR stands in: any order is as good as the known half allows."""
    if cell.score is None:
        return float("inf")
    score = cell.score.verdict.score
    return cell.score.checkpoint.sr if score is None else score


def worst_anchors(score: Score, values: AnchorValues, margin: float) -> tuple[WorstAnchor, ...]:
    """The anchors pushed furthest and those least apart from a different state, worst first."""
    wanted = score.checkpoint.ir_raw + margin
    distance = values.different_state_distance
    furthest = np.argsort(-values.radius, kind="stable")[:EACH].tolist()
    least = [i for i in np.argsort(distance, kind="stable").tolist() if not np.isnan(distance[i])]
    reasons: dict[int, list[str]] = {}
    for rank, index in enumerate(furthest):
        reasons.setdefault(index, []).append(_ranked(rank, "pushed", "furthest"))
    for rank, index in enumerate(least[:EACH]):
        reasons.setdefault(index, []).append(_ranked(rank, "", "least apart from another state"))
    return tuple(
        WorstAnchor(
            index=index,
            identity=int(values.anchor_ids[index]),
            radius=float(values.radius[index]),
            distance=None if np.isnan(distance[index]) else float(distance[index]),
            wanted=wanted,
            reasons=tuple(why),
        )
        for index, why in reasons.items()
    )


def _ranked(rank: int, verb: str, what: str) -> str:
    place = ("", "second ", "third ")[rank]
    return f"{verb} {place}{what}".strip()


def missing(data: ReportData) -> dict[str, list[int]]:
    """Anchors by operation whose pictures the report would show and does not have."""
    wanted: dict[str, list[int]] = {}
    for item in focus(data):
        name = item.cell.operation
        indices = [a.index for a in item.anchors if (name, a.index) not in data.previews]
        if name and indices:
            wanted[name] = indices
    return wanted


def preview_of(data: ReportData, cell: Measurement, anchor: WorstAnchor) -> Preview | None:
    """The anchor's pictures, when there are any."""
    return data.previews.get((cell.operation, anchor.index))


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
