"""The demo's picture: what the model sees, the verdicts, how noise spreads, what anchors decide."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from acpc_client import Outcome, Score

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

COLOURS = {
    "two-room-base": "#c1440e",
    "two-room-augmented": "#1b7837",
    "two-room-collapsed": "#5e3c99",
}
MARKERS = {"two-room-base": "o", "two-room-augmented": "s", "two-room-collapsed": "X"}


class Noise(NamedTuple):
    """A clean frame, uint8 (height, width, 3), and the noise in [0, 1] pixel units."""

    frame: np.ndarray
    sigma: float


def draw(
    path: Path,
    scores: dict[str, Score],
    steps: dict[str, list[float]],
    looks: dict[int, Score],
    noise: Noise,
) -> None:
    """Write the picture.

    Args:
        path: PNG to write.
        scores: Score of each checkpoint.
        steps: Mean normalised distance after each predicted step, by checkpoint.
        looks: Scores of the good checkpoint, by number of anchors.
        noise: What the checkpoints see.
    """
    figure = plt.figure(figsize=(14, 4.4), layout="constrained")
    frames, plane, spread, decided = figure.subfigures(1, 4, width_ratios=(0.6, 1.2, 1.2, 0.8))
    _frames(frames.subplots(2, 1), *noise)
    axis = plane.subplots()
    _plane(axis, scores)
    _steps(spread.subplots(), steps)
    _looks(decided.subplots(), looks)
    # Below the panels, where no mark and no bar can lie.
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _frames(axes: np.ndarray, frame: np.ndarray, sigma: float) -> None:
    noise = np.random.default_rng(0).normal(0.0, sigma, frame.shape)
    noisy = np.clip(frame / 255 + noise, 0, 1)
    for axis, image, title in zip(
        axes, (frame, noisy), ("clean frame", f"noise, sigma {sigma}"), strict=True
    ):
        axis.imshow(image, interpolation="nearest")
        axis.set_title(title, fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])


def _plane(axis: Axes, scores: dict[str, Score]) -> None:
    thresholds = next(iter(scores.values())).verdict.thresholds
    axis.fill_between([0, thresholds.ir], thresholds.sr, 2, color="#1b7837", alpha=0.15)
    axis.axvline(thresholds.ir, linestyle=":", color="grey")
    axis.axhline(thresholds.sr, linestyle=":", color="grey")
    for name, score in scores.items():
        passed = score.verdict.outcome is Outcome.PASSED
        sure = score.evidence and score.evidence.confident_outcome is not Outcome.UNDECIDED
        place = score.verdict.ir_relative, score.checkpoint.sr
        axis.plot(
            *place,
            linestyle="none",
            markersize=9,
            color=COLOURS[name],
            markerfacecoloralt="white",
            marker=MARKERS[name],
            fillstyle="full" if sure else "left",
            label=f"{name}: {'passes' if passed else 'fails'}{'' if sure else ', undecided'}",
            zorder=3,
        )
        _cross(axis, place, score, COLOURS[name])
    axis.set(xlim=(0, 1.15), ylim=(-0.05, 1.08))
    axis.set_xlabel("relative IR (lower: noise moves predictions less)")
    axis.set_ylabel("SR (higher: states stay apart)")
    axis.set_title("A checkpoint passes in the shaded corner (bars: 95 %)", fontsize=10)


def _cross(axis: Axes, place: tuple[float | None, float], score: Score, colour: str) -> None:
    """The intervals of a checkpoint, where the server gave any."""
    if score.evidence is None or score.evidence.ir_relative is None:
        return
    ir, sr = score.evidence.ir_relative, score.evidence.sr
    axis.plot((ir.lower, min(ir.upper, 1.15)), (place[1],) * 2, color=colour, linewidth=1.2)
    axis.plot((place[0],) * 2, (sr.lower, sr.upper), color=colour, linewidth=1.2)


def _steps(axis: Axes, steps: dict[str, list[float]]) -> None:
    for name, values in steps.items():
        axis.plot(
            range(1, len(values) + 1),
            values,
            color=COLOURS[name],
            marker=MARKERS[name],
            markersize=5,
        )
    axis.set_xlabel("predicted step")
    axis.set_ylabel("clean-perturbed distance / clean motion")
    axis.set_title("How far noise pushes each predicted step", fontsize=10)
    axis.set_ylim(bottom=0)


def _looks(axis: Axes, looks: dict[int, Score]) -> None:
    """SR with its interval, for each number of anchors, beside the threshold."""
    name = "two-room-augmented"
    for place, score in enumerate(looks.values()):
        if score.evidence is not None:
            sr = score.evidence.sr
            axis.plot((place, place), (sr.lower, sr.upper), color=COLOURS[name], linewidth=1.5)
        axis.plot(place, score.checkpoint.sr, marker=MARKERS[name], color=COLOURS[name])
    thresholds = next(iter(looks.values())).verdict.thresholds
    axis.axhline(thresholds.sr, linestyle=":", color="grey")
    axis.axhspan(thresholds.sr, 1.0, color="#1b7837", alpha=0.15)
    words = (f"{count} anchors:\n{_sure(score)}" for count, score in looks.items())
    axis.set_xticks(range(len(looks)), list(words))
    axis.set(xlim=(-0.6, len(looks) - 0.4), ylim=(None, 1.005), ylabel="SR")
    axis.set_title("More anchors decide", fontsize=10)


def _sure(score: Score) -> str:
    """The verdict where it is sure, otherwise that it is not."""
    if score.evidence is None or score.evidence.confident_outcome is Outcome.UNDECIDED:
        return "undecided"
    return "passes" if score.evidence.confident_outcome is Outcome.PASSED else "fails"
