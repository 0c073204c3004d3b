"""Local geometry: do perturbed views of one history overlap with other histories?"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from acpc.contract import Record
from acpc_client.errors import ArgumentError
from numpy.typing import NDArray

from acpc_lab.extras import load
from acpc_lab.studies.base import Parameters
from acpc_lab.tables import Arrays, Column, Integers, Numbers, Rows, Texts, groups

SPACES = ("encoder", "rollout")


@dataclass(frozen=True, eq=False)
class GeometryRows(Rows):
    """A row per anchor and checkpoint."""

    task: Annotated[Texts, Column("task")]
    run: Annotated[Texts, Column("training run, for example its seed")]
    level: Annotated[Numbers, Column("training condition: the augmentation level", low=0)]
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


@dataclass(frozen=True)
class GeometryParameters(Parameters):
    """The picture; no number of the summary depends on these.

    Attributes:
        highlighted: Histories in colour, evenly spread over the anchors.
        envelope: Share of a Gaussian that the ellipses enclose.
    """

    highlighted: int = 16
    perplexity: float = 30.0
    seed: int = 0
    envelope: float = 0.90

    def __post_init__(self) -> None:
        self.require("highlighted", self.highlighted >= 1, "a positive integer")
        self.require("perplexity", self.perplexity > 0, "a positive number")
        self.require("envelope", 0 < self.envelope < 1, "a share in (0, 1)")


@dataclass(frozen=True, repr=False, eq=False)
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


@dataclass(frozen=True, repr=False, eq=False)
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
        raise ArgumentError(
            "arrays",
            f"found clean {clean.shape} and views {views.shape}, wanted (n, dim) and "
            "(n, views, dim) with n of at least 2",
        )
    centre = clean.astype(np.float64)
    radius = np.linalg.norm(views.astype(np.float64) - centre[:, None], axis=2).max(axis=1)
    apart = np.stack([np.linalg.norm(centre - point, axis=1) for point in centre])  # (n, n)
    np.fill_diagonal(apart, np.inf)
    disjoint = (apart > radius[:, None] + radius[None, :]).all(axis=1)
    return Spacing(radius, apart.min(axis=1), disjoint)


def key(index: int, name: str) -> str:
    """Name of an array of the index-th checkpoint, in the order of the rows."""
    return f"{index}.{name}"


def summarise(
    rows: GeometryRows, parameters: GeometryParameters, arrays: Arrays
) -> GeometrySummary:
    """Appendix "Local-Geometry Case-Study Definitions" in the paper.

    Where the representations are at hand, the summary is computed from them, and the rows must
    agree; rows alone are enough otherwise.

    Args:
        rows: What the server measured.
        parameters: Of the picture.
        arrays: ``{i}.encoder_clean``, ``{i}.encoder_views``, ``{i}.rollout_clean`` and
            ``{i}.rollout_views`` of the i-th checkpoint in the rows, or nothing.

    Raises ArgumentError: A row is there twice, an array is missing, or rows and arrays disagree.
    """
    rows.require_unique("task", "run", "level", "anchor")
    spaces = []
    cells = groups(rows.task.tolist(), rows.run.tolist(), rows.level.tolist())
    for index, ((task, run, level), held) in enumerate(cells.items()):
        cell = rows.where(held)
        for space in SPACES:
            measured = _of_rows(cell, space)
            if arrays:
                measured = _checked(measured, arrays, index, space)
            spaces.append(_summary(task, run, level, space, measured))
    return GeometrySummary(tuple(spaces))


def _of_rows(rows: GeometryRows, space: str) -> Spacing:
    return Spacing(
        getattr(rows, f"{space}_radius"),
        getattr(rows, f"{space}_nearest"),
        getattr(rows, f"{space}_disjoint") == 1,
    )


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
            raise ArgumentError(
                f"{space}_{name}",
                f"the rows do not agree with the representations in {' and '.join(names)}",
            )
    return measured


def _summary(task: str, run: str, level: float, space: str, measured: Spacing) -> SpaceGeometry:
    if not measured.nearest.all():
        raise ArgumentError(
            f"{space}_nearest",
            f"{task}, run {run}, level {level:g}: is 0: two anchors have one representation, so "
            "r/NN has no value; the checkpoint may have collapsed",
        )
    return SpaceGeometry(
        task=task,
        run=run,
        level=level,
        space=space,
        anchors=len(measured.radius),
        median_ratio=float(np.median(measured.radius / measured.nearest)),
        below_nearest=float((measured.radius < measured.nearest).mean()),
        disjoint=float(measured.disjoint.mean()),
    )


def embedded(arrays: Arrays, parameters: GeometryParameters) -> dict[str, NDArray[Any]]:
    """The arrays and the t-SNE coordinates of each space, which take a while to compute.

    Raises FailedPrecondition: scikit-learn is not installed.
    """
    stems = [name.removesuffix("_clean") for name in arrays if name.endswith("_clean")]
    # One thread for all of linear algebra: it is a setting of the process.
    with load("threadpoolctl").threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as pool:
        placed = pool.map(
            lambda stem: tsne(arrays[f"{stem}_clean"], arrays[f"{stem}_views"], parameters), stems
        )
        return {**arrays, **{f"{stem}_tsne": at for stem, at in zip(stems, placed, strict=True)}}


def tsne(
    clean: NDArray[np.floating], views: NDArray[np.floating], parameters: GeometryParameters
) -> NDArray[np.float32]:
    """Coordinates (n, 1 + views, 2); the clean view comes first. For the eye only.

    Raises FailedPrecondition: scikit-learn is not installed.
    """
    points = np.concatenate([clean[:, None], views], axis=1)  # (n, 1 + views, dim)
    flat = points.reshape(-1, points.shape[-1]).astype(np.float64)
    manifold = load("sklearn.manifold", "tsne")
    perplexity = min(parameters.perplexity, (len(flat) - 1) / 3)
    projection = manifold.TSNE(perplexity=perplexity, init="pca", random_state=parameters.seed)
    # Threads sum in an order of their own, and t-SNE magnifies it.
    with load("threadpoolctl", "tsne").threadpool_limits(1):
        placed: NDArray[np.float32] = projection.fit_transform(flat).astype(np.float32)
    return placed.reshape(*points.shape[:2], 2)
