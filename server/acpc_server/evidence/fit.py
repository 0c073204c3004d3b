"""Whether a model predicts the data it is measured on: ratios of errors, and what is sure of them.

Trajectories are resampled (the Bayesian bootstrap, as of paired differences), and a ratio is one of
sums, so that anchors at rest weigh nothing. A usual cause is sure where undoing it surely lowers
the error to ``MATERIAL`` of it, at the error of all causes together (one-sided, Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from acpc.contract import CAUSES, EvidenceOptions, Fit, FitCause, FitOutcome
from acpc.evidence import Resampled, allowance, draw_weights, effective_groups
from jaxtyping import Float64, Int64

METHOD = "Bayesian bootstrap over trajectories of a ratio of sums"
MATERIAL = 0.95
"""An error of so much of another is no better: than standing still's, or than with a mistake."""


class Variant(NamedTuple):
    """Errors of n anchors with a usual cause undone, and standing still's as they are then."""

    error: Float64[np.ndarray, "n horizon"]
    still: Float64[np.ndarray, "n horizon"]


@dataclass(frozen=True)
class FitErrors:
    """Distances of clean predictions to the observed future, in latent units; NaN: not measured."""

    own: Float64[np.ndarray, "n horizon"]  # of the model's predictions, after each step
    still: Float64[np.ndarray, "n horizon"]  # of the last observed latent
    foreign: Float64[np.ndarray, "n horizon"]  # under another trajectory's actions from now on
    variants: Mapping[str, Variant]  # with a usual cause undone, by its name in ``CAUSES``
    trajectory: Int64[np.ndarray, "n"]  # of each anchor


def judge_fit(errors: FitErrors, options: EvidenceOptions) -> Fit | None:
    """Judge whether a model predicts its data; None where the latents of no anchor move."""
    if not float(errors.still.sum()) > 0:
        return None
    horizon = errors.own.shape[1]
    sums = np.concatenate([errors.own, errors.still], axis=1)
    [skill, *steps] = _ratios(
        sums,
        errors.trajectory,
        options,
        lambda x: [
            (x[:, :horizon].sum(1), x[:, horizon:].sum(1)),
            *zip(x[:, :horizon].T, x[:, horizon:].T, strict=True),
        ],
    )
    foreign, seen = None, np.isfinite(errors.foreign).all(axis=1)
    if seen.any():
        pooled = np.stack([errors.own.sum(1), errors.foreign.sum(1)], axis=1)[seen]
        [foreign] = _ratios(
            pooled, errors.trajectory[seen], options, lambda x: [(x[:, 0], x[:, 1])]
        )
    causes = [
        found
        for name, variant in errors.variants.items()
        if (found := _cause(name, variant, errors, options)) is not None
    ]
    alpha = 1 - options.confidence
    return Fit(
        outcome=_outcome(skill, foreign, causes, alpha),
        skill=skill.point,
        interval=skill.interval(options.confidence),
        step_skill=tuple(step.point for step in steps),
        step_intervals=tuple(step.interval(options.confidence) for step in steps),
        foreign=None if foreign is None else foreign.point,
        foreign_interval=None if foreign is None else foreign.interval(options.confidence),
        causes=tuple(sorted(causes, key=lambda cause: cause.skill / cause.instead_of)),
        tried=tuple(errors.variants),
        anchors=int(seen.sum()),
    )


def _outcome(
    skill: Resampled, foreign: Resampled | None, causes: list[FitCause], alpha: float
) -> FitOutcome:
    """No better than standing still, or foreign actions, or a sure cause is a misfit.

    Surely better than both, with no cause in sight, is a fit.
    """
    ratios = [skill, *([] if foreign is None else [foreign])]
    useless = skill.lower(alpha) >= MATERIAL or (foreign is not None and foreign.lower(alpha) >= 1)
    if useless or any(cause.sure for cause in causes):
        return FitOutcome.DOES_NOT_FIT
    fits = all(x.upper(alpha) < 1 for x in ratios) and not causes
    return FitOutcome.FITS if fits else FitOutcome.UNDECIDED


def _cause(
    name: str, variant: Variant, errors: FitErrors, options: EvidenceOptions
) -> FitCause | None:
    """Return the cause where undoing it lowers the error, to less than standing still's."""
    seen = np.isfinite(variant.error).all(axis=1)
    if not seen.any() or not float(variant.still[seen].sum()) > 0:
        return None
    own, still = errors.own[seen].sum(1), errors.still[seen].sum(1)
    sums = np.stack([variant.error[seen].sum(1), variant.still[seen].sum(1), own, still], axis=1)
    alpha = 2 * (1 - options.confidence) / len(CAUSES)  # of the one side that is better
    [skill, better] = _ratios(
        sums,
        errors.trajectory[seen],
        options,
        lambda x: [(x[:, 0], x[:, 1]), (x[:, 0] * x[:, 3], x[:, 1] * x[:, 2])],
        alpha=alpha,
    )
    if skill.point >= 1 or better.point > MATERIAL:
        return None
    sure = skill.upper(alpha) < 1 and better.upper(alpha) < MATERIAL
    return FitCause(name, skill.point, skill.point / better.point, sure, int(seen.sum()))


def _ratios(
    sums: Float64[np.ndarray, "n columns"],
    trajectory: Int64[np.ndarray, "n"],
    options: EvidenceOptions,
    of: Callable[[np.ndarray], list[tuple[np.ndarray, np.ndarray]]],
    alpha: float | None = None,
) -> list[Resampled]:
    """Resample ratios of sums; of one trajectory, or of denominators of 0, nothing is known.

    ``alpha`` is the error that their ends are read at; None: that of the options.
    """
    group = np.asarray(np.unique(trajectory, return_inverse=True)[1], np.int64)
    points = [(float(a[0]), float(b[0])) for a, b in of(sums.sum(axis=0)[None])]
    worth = effective_groups(group)
    draws = [np.empty((0, 2))]
    if worth > 1:
        confidence = options.confidence if alpha is None else 1 - alpha
        shape = (1 - 1 / worth) / allowance(worth, confidence)
        totals = np.zeros((int(group.max()) + 1, sums.shape[1]))
        np.add.at(totals, group, sums)
        weighed = [weights.own @ totals for weights in draw_weights(group, options, shape)]
        draws = [np.stack(pair, axis=1) for pair in of(np.concatenate(weighed))]
    else:
        draws *= len(points)
    found = []
    with np.errstate(divide="ignore", invalid="ignore"):
        for (above, below), drawn in zip(points, draws, strict=True):
            ratio = np.sort(drawn[:, 0] / drawn[:, 1])  # NaN, of 0 over 0, goes last
            point = above / below if below else math.nan
            found.append(Resampled(point, ratio, ratio, METHOD))
    return found
