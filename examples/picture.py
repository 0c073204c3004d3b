"""The demo's picture: what the model sees, where the checkpoints stand, how noise spreads."""

from __future__ import annotations

from pathlib import Path

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


def draw(
    path: Path,
    scores: dict[str, Score],
    steps: dict[str, list[float]],
    frame: np.ndarray,
    sigma: float,
) -> None:
    """Write the picture.

    Args:
        path: PNG to write.
        scores: Score of each checkpoint.
        steps: Mean normalised distance after each predicted step, by checkpoint.
        frame: A clean frame, uint8 (height, width, 3).
        sigma: Noise in [0, 1] pixel units.
    """
    figure = plt.figure(figsize=(12, 4.2), layout="constrained")
    left, middle, right = figure.subfigures(1, 3, width_ratios=(0.75, 1.2, 1.2))
    _frames(left.subplots(2, 1), frame, sigma)
    _plane(middle.subplots(), scores)
    _steps(right.subplots(), steps)
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
    axis.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 0.12))


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
            label=name,
        )
    axis.set_xlabel("predicted step")
    axis.set_ylabel("clean-perturbed distance / clean motion")
    axis.set_title("How far noise pushes each predicted step", fontsize=10)
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8)
