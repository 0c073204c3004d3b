"""Chooses the checkpoints and anchors that fail worst, and fetches their pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from acpc_client import AnchorValues
from acpc_client.errors import AcpcError

from acpc_lab.report.model import ReportData
from acpc_lab.sweeps import CellResult

if TYPE_CHECKING:
    from acpc_client import AcpcClient

_PLACES = ("", "second ", "third ")
EACH = len(_PLACES)
"""Anchors of either kind that are shown of one cell."""

MAX_CELLS = 6


@dataclass(frozen=True)
class FocusAnchor:
    """One anchor of a cell that fails, or comes closest to failing.

    Attributes:
        distance: D; None where the anchor has no partner.
    """

    index: int
    identity: int
    radius: float
    distance: float | None
    reasons: tuple[str, ...]


class Focus(NamedTuple):
    """A cell with its worst anchors."""

    cell: CellResult
    anchors: tuple[FocusAnchor, ...]


def focus(data: ReportData) -> list[Focus]:
    """Of each kind of shift, at whatever level, the cell with the smallest S; six in all.

    References aside, unless there is nothing else.
    """
    kinds: dict[str, list[CellResult]] = {}
    for cell in data.cells:
        if cell.values is not None:
            kinds.setdefault(cell.shift.rpartition(":")[0] or cell.shift, []).append(cell)
    worst = (min([x for x in cells if not x.is_reference] or cells, key=_score)
             for cells in kinds.values())  # fmt: skip
    found = sorted(worst, key=_score)[:MAX_CELLS]
    return [Focus(cell, worst_anchors(cell.values)) for cell in found if cell.values]


def _score(cell: CellResult) -> float:
    """S; without a reference, SR stands in: any order is as good as the known half allows."""
    found: float | None = cell.value("score")
    return cell.value("sr") if found is None else found


def worst_anchors(values: AnchorValues) -> tuple[FocusAnchor, ...]:
    """The anchors pushed furthest and those least apart from a different state, worst first."""
    distance = values.different_state_distance
    ranked = (("pushed {}furthest", -values.radius), ("{}least apart from another state", distance))
    reasons: dict[int, list[str]] = {}
    for words, order in ranked:
        known = [i for i in np.argsort(order, kind="stable").tolist() if not np.isnan(order[i])]
        for index, place in zip(known, _PLACES, strict=False):
            reasons.setdefault(index, []).append(words.format(place))
    return tuple(
        FocusAnchor(
            index=index,
            identity=int(values.anchor_ids[index]),
            radius=float(values.radius[index]),
            distance=None if np.isnan(distance[index]) else float(distance[index]),
            reasons=tuple(why),
        )
        for index, why in reasons.items()
    )


def missing(data: ReportData) -> dict[str, list[int]]:
    """Anchors by operation whose pictures the report would show and does not have."""
    wanted: dict[str, list[int]] = {}
    for item in focus(data):
        name = item.cell.operation
        indices = [a.index for a in item.anchors if (name, a.index) not in data.previews]
        if name and indices:
            wanted[name] = indices
    return wanted


def with_pictures(data: ReportData, client: AcpcClient) -> ReportData:
    """The report with pictures of its worst anchors, as far as the server still has them.

    A server that has none of them or cannot be reached does not fail the report: the page says
    why there are no pictures.
    """
    wanted, found, why = missing(data), dict(data.previews), ""
    for name, indices in wanted.items():
        try:
            previews = client.preview_anchors(name, indices)
        except AcpcError as error:
            why = why or f"the server answered {error.code}: {error.message}"
            if error.code == "UNAVAILABLE":
                why = "no server could be reached when this page was made."
                break
            continue
        found |= {(name, item.anchor): item for item in previews}
    return data.with_(previews=found, previews_missing=why if wanted else data.previews_missing)
