"""Local geometry: do perturbed views of one history overlap with other histories?"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from acpc.arrays import NDArray
from acpc.contract import GeometryStudy, Record, bounded
from acpc_client.errors import ArgumentError, FailedPrecondition

from acpc_lab.extras import load
from acpc_lab.plotting import INK, RULE, panels
from acpc_lab.studies.base import Answers, Evidence, Figures, LevelRows, Parameters, Study, gathered
from acpc_lab.studies.figures import CHECKPOINT, Listing
from acpc_lab.studies.measuring import Ask
from acpc_lab.tables import Arrays, Integers, Numbers, column, optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPACES = {"encoder": "encoder", "rollout": "after the rollout"}


class GeometryRows(LevelRows):
    """A row per anchor and checkpoint."""

    anchor: Integers = column("identity of the anchor")
    encoder_radius: Numbers = column("largest distance of a view, encoded", low=0)
    encoder_nearest: Numbers = column("distance to the nearest other anchor", low=0)
    encoder_disjoint: Integers = column("1: its ball meets no other anchor's", 0, 1)
    rollout_radius: Numbers = column("largest distance of a view, rolled out", low=0)
    rollout_nearest: Numbers = column("distance to the nearest other anchor", low=0)
    rollout_disjoint: Integers = column("1: its ball meets no other anchor's", 0, 1)
    motion_scale: Numbers = optional("scale s_i of its clean motion, with --motion", low=0)


class GeometryParameters(Parameters):
    """The picture; no number of the summary depends on these.

    Attributes:
        highlighted: Histories in colour, evenly spread over the anchors.
        perplexity: Of t-SNE.
        tsne_seed: Of t-SNE.
        envelope: Share of a Gaussian that the ellipses enclose.
    """

    highlighted: int = bounded(16, ge=1, le=10**6)
    perplexity: float = bounded(30.0, gt=0)
    tsne_seed: int = bounded(0, ge=0, le=2**32 - 1)
    envelope: float = bounded(0.90, gt=0, lt=1)


class SpaceGeometry(Record):
    """One checkpoint in one space: ``"encoder"``, or ``"rollout"`` after H predicted steps.

    Shares are of the anchors: those with r < NN, and those whose ball meets no other's.
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


class Spacing(NamedTuple):
    """Radius and spacing of every anchor, each (n,), Eq. local-radius-spacing in the paper."""

    radius: Numbers
    nearest: Numbers
    disjoint: NDArray[np.generic]


def measure(clean: NDArray[np.floating], views: NDArray[np.floating]) -> Spacing:
    """Radius, nearest other anchor and disjointness, from the representations, in float64.

    ``clean`` (n, dim) holds that of each history, ``views`` (n, views, dim) the perturbed ones.
    Raises ArgumentError: The shapes do not fit, or there are fewer than two histories.
    """
    fits = clean.ndim == 2 and views.ndim == 3 and len(clean) == len(views)
    if not fits or clean.shape[1] != views.shape[2] or len(clean) < 2 or views.shape[1] < 1:
        wanted = "wanted (n, dim) and (n, views, dim) with n of at least 2"
        found = f"found clean {clean.shape} and views {views.shape}"
        raise ArgumentError("arrays", f"{found}, {wanted}")
    centre = clean.astype(np.float64)
    radius = np.linalg.norm(views.astype(np.float64) - centre[:, None], axis=2).max(axis=1)
    apart = np.stack([np.linalg.norm(centre - point, axis=1) for point in centre])  # (n, n)
    np.fill_diagonal(apart, np.inf)
    disjoint = (apart > radius[:, None] + radius[None, :]).all(axis=1)
    return Spacing(radius, apart.min(axis=1), disjoint)


def summarise(
    rows: GeometryRows, parameters: GeometryParameters, arrays: Arrays
) -> GeometrySummary:
    """Appendix "Local-Geometry Case-Study Definitions" in the paper.

    Representations, where they are at hand, give the summary, and the rows must agree: arrays
    ``{i}.encoder_clean``, ``{i}.encoder_views`` and those of ``rollout`` of the i-th checkpoint.
    Raises ArgumentError: A row is there twice, an array is missing, or rows and arrays disagree.
    """
    rows.require_unique("task", "run", "level", "anchor")
    spaces = []
    for index, ((task, run, level), cell) in enumerate(rows.by("task", "run", "level")):
        for space in SPACES:
            found = Spacing(*(getattr(cell, f"{space}_{name}") for name in Spacing._fields))
            if arrays:
                found = _checked(found, arrays, index, space)
            if not found.nearest.all():
                where = f"{task}, run {run}, level {level:g}"
                why = "two anchors have one representation; the checkpoint may have collapsed"
                wrong = f"{where}: is 0, so r/NN has no value: {why}"
                raise ArgumentError(f"{space}_nearest", wrong)
            ratio = found.radius / found.nearest
            shares = (found.radius < found.nearest, found.disjoint)
            below, disjoint = (float(share.mean()) for share in shares)
            numbers = (float(np.median(ratio)), below, disjoint)
            spaces.append(SpaceGeometry(task, run, level, space, len(ratio), *numbers))
    return GeometrySummary(tuple(spaces))


def _checked(of_rows: Spacing, arrays: Arrays, index: int, space: str) -> Spacing:
    """What the representations give. Raises ArgumentError: They lack, or the rows disagree."""
    names = [f"{index}.{space}_clean", f"{index}.{space}_views"]
    for name in names:
        if name not in arrays:
            raise ArgumentError("arrays", f"{name} is missing; found {', '.join(arrays)}")
    clean, views = (arrays[name] for name in names)
    measured = measure(clean, views)
    nothing = 1e-5 * float(np.abs(clean).max(initial=0.0))  # Representations travel as float32.
    for name in ("radius", "nearest"):
        ours, theirs = getattr(measured, name), getattr(of_rows, name)
        if len(ours) != len(theirs) or not np.allclose(ours, theirs, rtol=1e-4, atol=nothing):
            wrong = f"the rows do not agree with the representations in {' and '.join(names)}"
            raise ArgumentError(f"{space}_{name}", wrong)
    return measured


def shown(summary: GeometrySummary) -> Iterator[str | Listing]:
    """The numbers of every checkpoint in either space."""
    columns = (
        *CHECKPOINT,
        ("space", "space"),
        ("median r/NN", "median_ratio", ".2f"),
        ("r < NN", "below_nearest", ".1%"),
        ("fully disjoint", "disjoint", ".1%"),
    )
    yield Listing(summary.spaces, columns, "numbers", 4)


def embedded(arrays: Arrays, parameters: GeometryParameters) -> dict[str, NDArray[Any]]:
    """The arrays with t-SNE coordinates (n, 1 + views, 2) of each space, the clean view first.

    They take a while, and are only for looking at. Raises FailedPrecondition: scikit-learn is not
    installed.
    """

    def place(stem: str) -> NDArray[np.float32]:
        clean, views = arrays[f"{stem}_clean"], arrays[f"{stem}_views"]
        points = np.concatenate([clean[:, None], views], axis=1)  # (n, 1 + views, dim)
        flat = points.reshape(-1, points.shape[-1]).astype(np.float64)
        perplexity = min(parameters.perplexity, (len(flat) - 1) / 3)
        chosen = {"perplexity": perplexity, "random_state": parameters.tsne_seed}
        projection = load("sklearn.manifold", "tsne").TSNE(init="pca", **chosen)
        placed: NDArray[np.float32] = projection.fit_transform(flat).astype(np.float32)
        return placed.reshape(*points.shape[:2], 2)

    stems = [name.removesuffix("_clean") for name in arrays if name.endswith("_clean")]
    stems = [stem for stem in stems if f"{stem}_tsne" not in arrays]
    # One thread for all of linear algebra, a setting of the process: threads sum in an order of
    # their own, and t-SNE magnifies it.
    with (
        load("threadpoolctl", "tsne").threadpool_limits(1),
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        placed = zip(stems, pool.map(place, stems), strict=True)
        return {**arrays, **{f"{stem}_tsne": at for stem, at in placed}}


def draw(evidence: Evidence) -> Figures:
    """A column per checkpoint, a row per space; none without representations or scikit-learn."""
    summary, parameters, arrays = evidence.summary, evidence.parameters, {}
    if evidence.arrays:
        with contextlib.suppress(FailedPrecondition):
            arrays = embedded(evidence.arrays, parameters)
    if not arrays:
        return {}
    rows, columns = len(SPACES), len(summary.spaces) // len(SPACES)
    figure, axes = panels(columns, width=2.4, height=2.6, rows=rows)
    for position, item in enumerate(summary.spaces):
        axis = axes[position % rows * columns + position // rows]
        placed = arrays[f"{position // rows}.{item.space}_tsne"]
        _scatter(axis, placed.astype(np.float64), parameters)
        axis.set_title(f"{item.task}, run {item.run}, {item.level:g}\n{SPACES[item.space]}")
        text = f"r/NN {item.median_ratio:.2f}\nr<NN {item.below_nearest:.0%}\n"
        text += f"disjoint {item.disjoint:.0%}"
        axis.text(0.02, 0.98, text, transform=axis.transAxes, va="top", fontsize=6)
    figure.supxlabel(
        "large: clean histories; small, with an ellipse: their views\n"
        "t-SNE coordinates and ellipses are qualitative; the numbers are high-dimensional",
        fontsize=6.5,
    )
    return {"tsne": figure}


def _scatter(axis: Axes, placed: Numbers, parameters: GeometryParameters) -> None:
    count = min(parameters.highlighted, len(placed))
    chosen = np.linspace(0, len(placed) - 1, count).round().astype(int)
    rest = np.delete(placed, chosen, axis=0).reshape(-1, 2)
    axis.scatter(rest[:, 0], rest[:, 1], s=2, color=RULE, linewidth=0, rasterized=True)
    colours = load("matplotlib").colormaps["turbo"](np.linspace(0.05, 0.95, count))
    ellipse = load("matplotlib.patches").Ellipse
    edge: dict[str, Any] = {"edgecolor": INK, "linewidth": 0.8, "zorder": 3}
    for colour, history in zip(colours, placed[chosen], strict=True):
        axis.scatter(history[1:, 0], history[1:, 1], s=5, color=colour, linewidth=0, zorder=2)
        axis.scatter(history[0, 0], history[0, 1], s=28, color=colour, **edge)
        if len(history) > 3:
            centre, width, height, angle = envelope(history[1:], parameters.envelope)
            patch = ellipse(centre, width, height, angle=angle, color=colour, alpha=0.2, zorder=1)
            axis.add_patch(patch)
    axis.set(xticks=[], yticks=[])


def envelope(points: Numbers, share: float) -> tuple[tuple[float, float], float, float, float]:
    """Centre, full width, full height and angle in degrees of the ellipse that encloses ``share``.

    It is of the Gaussian with mean and covariance of ``points`` (n, 2).
    """
    centre = points.mean(axis=0)
    lengths, axes = np.linalg.eigh(np.cov(points.T))
    # Of the squared Mahalanobis distance in two dimensions, -2 log(1 - p) is the p-quantile.
    reach = 2 * np.sqrt(np.maximum(lengths, 0) * -2 * math.log(1 - share))
    angle = math.degrees(math.atan2(axes[1, 0], axes[0, 0]))
    return (float(centre[0]), float(centre[1])), float(reach[0]), float(reach[1]), angle


def _gather(
    answers: Answers, parameters: GeometryParameters, note: Callable[[str], None]
) -> tuple[GeometryRows, Arrays]:
    """Rows and representations; their t-SNE coordinates, where scikit-learn is installed."""
    rows, arrays = gathered(GeometryRows, answers)
    note("computing the t-SNE coordinates of the picture")
    try:
        return rows, embedded(arrays, parameters)
    except FailedPrecondition as missing:
        note(f"no t-SNE: {missing.message}")
        return rows, arrays


STUDY = Study(
    "geometry",
    "Do perturbed views of one history overlap with other histories?",
    summarise,
    shown,
    "median r/NN 1.41 encoded and 1.86 rolled out, none disjoint; augmented 0.10 and "
    "0.19, 95.3% and 84.4% disjoint",
    (
        "acpc study run geometry --checkpoints pair.csv --out geometry/",
        "acpc study run geometry --checkpoints pair.csv --shift blur:5,15 --out blurred/",
    ),
    Ask(GeometryStudy()),
    gather=_gather,
    draw=draw,
)
