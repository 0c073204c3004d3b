"""Local geometry: do perturbed views of one history overlap with other histories?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from acpc.arrays import NDArray
from acpc.contract import GeometryStudy, Record
from acpc_client.errors import ArgumentError

from acpc_lab.studies.base import (
    CHECKPOINT,
    LevelRows,
    Listing,
    Parameters,
    Study,
    key,
)
from acpc_lab.studies.figures import Panel, by_row, case_of
from acpc_lab.studies.measuring import Ask
from acpc_lab.tables import Arrays, Column, Integers, Numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPACES = {"encoder": "encoder", "rollout": "after the rollout"}


class GeometryRows(LevelRows):
    """A row per anchor and checkpoint."""

    anchor: Annotated[Integers, Column("identity of the anchor")]
    encoder_radius: Annotated[Numbers, Column("largest distance of a view, encoded", low=0)]
    encoder_nearest: Annotated[Numbers, Column("distance to the nearest other anchor", low=0)]
    encoder_disjoint: Annotated[Integers, Column("1: its ball meets no other anchor's", 0, 1)]
    rollout_radius: Annotated[Numbers, Column("largest distance of a view, rolled out", low=0)]
    rollout_nearest: Annotated[Numbers, Column("distance to the nearest other anchor", low=0)]
    rollout_disjoint: Annotated[Integers, Column("1: its ball meets no other anchor's", 0, 1)]
    motion_scale: Annotated[
        Numbers, Column("scale s_i of its clean motion, with --motion", low=0, optional=True)
    ]


class SpaceGeometry(Record):
    """One checkpoint in one space.

    Attributes:
        space: ``"encoder"``, or ``"rollout"`` after H predicted steps.
        median_ratio: Median over anchors of r / NN.
        below_nearest: Share of the anchors with r < NN.
        disjoint: Share of the anchors whose ball meets no other anchor's ball.
    """

    task: str
    run: str
    level: float
    space: str
    anchors: int
    median_ratio: float
    below_nearest: float
    disjoint: float


class GeometrySummary(Record):
    """The answer of the geometry study, encoder before rollout for each checkpoint."""

    spaces: tuple[SpaceGeometry, ...]


@dataclass(frozen=True)
class Spacing:
    """Radius and spacing of every anchor, each (n,), Eq. local-radius-spacing in the paper."""

    radius: Numbers
    nearest: Numbers
    disjoint: NDArray[np.bool_]


def measure(clean: NDArray[np.floating], views: NDArray[np.floating]) -> Spacing:
    """Radius, nearest other anchor and disjointness, from the representations, in float64.

    Args:
        clean: Clean representation of each history, (n, dim).
        views: Perturbed representations, (n, views, dim).

    Raises ArgumentError: The shapes do not fit, or there are fewer than two histories.
    """
    fits = clean.ndim == 2 and views.ndim == 3 and len(clean) == len(views)
    if not fits or clean.shape[1] != views.shape[2] or len(clean) < 2 or views.shape[1] < 1:
        wanted = "wanted (n, dim) and (n, views, dim) with n of at least 2"
        raise ArgumentError(
            "arrays", f"found clean {clean.shape} and views {views.shape}, {wanted}"
        )
    centre = clean.astype(np.float64)
    radius = np.linalg.norm(views.astype(np.float64) - centre[:, None], axis=2).max(axis=1)
    apart = np.stack([np.linalg.norm(centre - point, axis=1) for point in centre])  # (n, n)
    np.fill_diagonal(apart, np.inf)
    disjoint = (apart > radius[:, None] + radius[None, :]).all(axis=1)
    return Spacing(radius, apart.min(axis=1), disjoint)


def summarise(rows: GeometryRows, parameters: Parameters, arrays: Arrays) -> GeometrySummary:
    """Appendix "Local-Geometry Case-Study Definitions" in the paper.

    Where the representations are at hand, the summary is computed from them, and the rows must
    agree; rows alone are enough otherwise. ``arrays`` has ``{i}.encoder_clean``,
    ``{i}.encoder_views``, ``{i}.rollout_clean`` and ``{i}.rollout_views`` of the i-th checkpoint.

    Raises ArgumentError: A row is there twice, an array is missing, or rows and arrays disagree.
    """
    rows.require_unique("task", "run", "level", "anchor")
    spaces = []
    for index, (named, cell) in enumerate(rows.by("task", "run", "level")):
        for space in SPACES:
            names = (f"{space}_{name}" for name in ("radius", "nearest", "disjoint"))
            radius, nearest, disjoint = (getattr(cell, name) for name in names)
            measured = Spacing(radius, nearest, disjoint == 1)
            if arrays:
                measured = _checked(measured, arrays, index, space)
            spaces.append(_summary(named, space, measured))
    return GeometrySummary(tuple(spaces))


def _checked(of_rows: Spacing, arrays: Arrays, index: int, space: str) -> Spacing:
    names = [key(index, f"{space}_clean"), key(index, f"{space}_views")]
    missing = [name for name in names if name not in arrays]
    if missing:
        raise ArgumentError("arrays", f"{missing[0]} is missing; found {', '.join(arrays)}")
    measured = measure(*(arrays[name] for name in names))
    for name in ("radius", "nearest"):
        ours, theirs = getattr(measured, name), getattr(of_rows, name)
        # Representations travel as float32.
        scale = float(np.abs(arrays[names[0]]).max(initial=0.0))
        if len(ours) != len(theirs) or not np.allclose(ours, theirs, rtol=1e-4, atol=1e-5 * scale):
            wrong = f"the rows do not agree with the representations in {' and '.join(names)}"
            raise ArgumentError(f"{space}_{name}", wrong)
    return measured


def _summary(named: tuple[str, str, float], space: str, measured: Spacing) -> SpaceGeometry:
    if not measured.nearest.all():
        why = "two anchors have one representation; the checkpoint may have collapsed"
        wrong = f"{named[0]}, run {named[1]}, level {named[2]:g}: is 0, so r/NN has no value: {why}"
        raise ArgumentError(f"{space}_nearest", wrong)
    ratio = measured.radius / measured.nearest
    shares = (measured.radius < measured.nearest, measured.disjoint)
    numbers = (float(np.median(ratio)), *(float(share.mean()) for share in shares))
    return SpaceGeometry(*named, space, len(ratio), *numbers)


def shown(summary: GeometrySummary) -> Iterator[str | Listing]:
    """The numbers of every checkpoint in either space."""
    yield Listing(
        summary.spaces,
        (
            *CHECKPOINT,
            ("space", "space"),
            ("median r/NN", "median_ratio", ".2f"),
            ("r < NN", "below_nearest", ".1%"),
            ("fully disjoint", "disjoint", ".1%"),
        ),
    )


def numbers(summary: GeometrySummary) -> Figure:
    """Median r/NN and the two fractions, by checkpoint and space."""
    fields = {
        "median_ratio": "median r/NN",
        "below_nearest": "fraction r < NN",
        "disjoint": "fully disjoint fraction",
    }
    by_space = {
        label: [item for item in summary.spaces if item.space == space]
        for space, label in SPACES.items()
    }
    shown = [
        Panel(
            title, {label: [getattr(item, name) for item in of] for label, of in by_space.items()}
        )
        for name, title in fields.items()
    ]
    return by_row(list(dict.fromkeys(map(case_of, summary.spaces))), shown)


STUDY = Study(
    "geometry",
    "Do perturbed views of one history overlap with other histories?",
    summarise,
    shown,
    lambda made: {"numbers": numbers(made.summary)},
    "median r/NN 1.41 encoded and 1.86 rolled out, none disjoint; augmented 0.10 and "
    "0.19, 95.3% and 84.4% disjoint",
    (
        "acpc study run geometry --checkpoints pair.csv --out geometry/",
        "acpc study run geometry --checkpoints pair.csv --shift blur:5,15 --out blurred/",
    ),
    Ask(GeometryStudy()),
)
