"""The anchors of a score that were pushed furthest, or lie least apart, with their pictures."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from acpc.arrays import NDArray
from acpc.contract import AnchorPreview, ArgumentError, Columns, Record, Tabular, columns_of

from acpc_client.results.answers import Operation
from acpc_client.results.documents import Result, score_of

MOST = 32
"""Anchors whose pictures one call gives."""
RANKINGS = ("radius", "distance")


class WorstAnchor(Record):
    """An anchor, its measurements and the model's input.

    Attributes:
        anchor: Its index, in the order of ``AnchorValues``.
        anchor_id: Its identity: of a dataset's anchors the number of its window.
        trajectory: Episode it was cut from; None: not recorded.
        radius: R, how far its predictions were pushed, in units of its motion scale.
        distance: D to the partner in another state; None where it has none.
        clean: Its history, uint8 (h, height, width, 3).
        perturbed: The same under one draw of the shift.
        partner: History of its partner; None where it has none.
    """

    anchor: int
    anchor_id: int
    trajectory: int | None
    radius: float
    distance: float | None
    clean: NDArray[np.uint8]
    perturbed: NDArray[np.uint8]
    partner: NDArray[np.uint8] | None


class WorstAnchors(Tabular, Record):
    """Answer of ``worst_anchors``, worst first.

    Attributes:
        checkpoint: Name of the checkpoint.
        ir_raw: Its raw IR, which the radii are to be compared with.
        by: What they are ranked by: ``radius`` or ``distance``.
        draw: Which draw of the shift is seen.
        anchors: Those asked for, or as many as there are.
    """

    checkpoint: str
    ir_raw: float
    by: str
    draw: int
    anchors: tuple[WorstAnchor, ...]

    def table(self) -> Columns:
        """A row per anchor, without its pictures."""
        names = ("anchor", "anchor_id", "trajectory", "radius", "distance")
        return columns_of(self.anchors, *names)

    def headline(self) -> str:
        """Names the ranking, and the raw IR to compare it with."""
        ranked = "pushed furthest" if self.by == "radius" else "least apart from another state"
        return (
            f"{len(self.anchors)} anchors of {self.checkpoint} {ranked}; raw IR {self.ir_raw:.3g}"
        )


def choose_worst(answer: Operation | Result, count: int, by: str) -> list[int]:
    """Indices of the worst anchors, worst first; by distance only of those with a partner.

    Raises ArgumentError: Another number or ranking, or a score without values per anchor;
    AcpcError: The job ended without a score.
    """
    if not 1 <= count <= MOST:
        raise ArgumentError("count", f"found {count}, wanted 1 to {MOST}")
    if by not in RANKINGS:
        raise ArgumentError("by", f"found {by!r}, wanted {' or '.join(RANKINGS)}")
    values = score_of(answer, "job").checkpoint.anchor_values
    if values is None:
        raise ArgumentError("job", "holds no values per anchor: the server left them out")
    if by == "radius":
        return [int(i) for i in np.argsort(-values.radius, kind="stable")[:count]]
    apart = values.different_state_distance  # sorted with the NaN of those without partner last
    return [int(i) for i in np.argsort(apart, kind="stable")[:count] if not np.isnan(apart[i])]


def operation_of(answer: Operation | Result) -> str:
    """Name of the job that an answer is of; ArgumentError where it names none."""
    name = answer.operation if isinstance(answer, Result) else getattr(answer, "name", "")
    if not name:
        raise ArgumentError(
            "job", "names no job, whose server has the frames: give its name, or a result with one"
        )
    return name


def worst_of(
    answer: Operation | Result, by: str, draw: int, previews: Iterable[AnchorPreview]
) -> WorstAnchors:
    """The chosen anchors with their pictures."""
    score = score_of(answer, "job")
    values = score.checkpoint.anchor_values
    assert values is not None  # noqa: S101 - they were chosen by them
    episodes, distance = values.trajectory_ids, values.different_state_distance
    return WorstAnchors(
        score.checkpoint.checkpoint.name,
        score.checkpoint.ir_raw,
        by,
        draw,
        tuple(
            WorstAnchor(
                anchor_id=int(values.anchor_ids[seen.anchor]),
                trajectory=None if episodes is None else int(episodes[seen.anchor]),
                radius=float(values.radius[seen.anchor]),
                distance=None if np.isnan(distance[seen.anchor]) else float(distance[seen.anchor]),
                **vars(seen),
            )
            for seen in previews
        ),
    )
