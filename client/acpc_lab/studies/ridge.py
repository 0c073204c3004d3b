"""Ridge regression on standardised features, fitted on all groups but one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from acpc_client.errors import ArgumentError
from numpy.typing import NDArray

from acpc_lab.tables import groups as groups_of

Matrix = NDArray[np.float64]


def held_out_errors(
    features: Sequence[Matrix], target: Matrix, held_out: NDArray[np.generic], alpha: float
) -> Matrix:
    """Absolute error of every row, predicted by a ridge fitted on the rows of other groups.

    Features are standardised with mean and population standard deviation of the rows the ridge is
    fitted on; a feature that is constant there becomes zero. The intercept is not penalised.

    Args:
        features: One (n,) array per feature.
        target: What is predicted, (n,).
        held_out: Group of each row, (n,).
        alpha: Penalty, in the sum of squares ||y - Xw - c||^2 + alpha ||w||^2.

    Returns:
        |prediction - target|, (n,).

    Raises:
        ArgumentError: There are fewer than two groups.
    """
    design = np.stack(features, axis=1)  # (n, features)
    folds = groups_of(held_out.tolist())
    if len(folds) < 2:
        raise ArgumentError("groups", f"found {len(folds)}, wanted at least 2 to leave one out")
    errors = np.empty(len(target))
    for rows in folds.values():
        rest = np.ones(len(target), dtype=bool)
        rest[rows] = False
        errors[rows] = np.abs(
            _predict(design[rest], target[rest], design[rows], alpha) - target[rows]
        )
    return errors


def _predict(design: Matrix, target: Matrix, unseen: Matrix, alpha: float) -> Matrix:
    centre, scale = design.mean(axis=0), design.std(axis=0)
    # Rounding leaves a constant column with a spread of a few units in the last place.
    scale = np.where(scale <= 10 * np.finfo(float).eps * np.abs(centre), np.inf, scale)
    standard = (design - centre) / scale
    offset = target.mean()
    gram = standard.T @ standard + alpha * np.eye(design.shape[1])
    weights = np.linalg.solve(gram, standard.T @ (target - offset))
    predicted: Matrix = (unseen - centre) / scale @ weights + offset
    return predicted
