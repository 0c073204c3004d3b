"""Labels of endpoint states: which of them count as different."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from acpc.contract import ArgumentError

MAX_LABEL_BITS = 62


def median_split_labels(features: Float64[np.ndarray, "n features"]) -> Int64[np.ndarray, "n"]:
    """Labels endpoint states by median splits, Tab. sr-labels in the paper.

    Bit f of a label is 1 when feature f lies strictly above its median over the given anchors; of
    an even number the median is the mean of the middle two.

    Raises ArgumentError: No anchors, no or more than 62 features, or a value that is not finite.
    """
    anchors, count = features.shape
    if not 1 <= count <= MAX_LABEL_BITS:
        raise ArgumentError(
            "label_rule", f"makes {count} features; give 1 to {MAX_LABEL_BITS}, one bit each"
        )
    if anchors == 0:
        raise ArgumentError("anchors", "are empty; labels need at least 1 anchor")
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if bad.size:
        raise ArgumentError("label_features", f"row {bad[0]} holds NaN or infinity")
    ordered = np.sort(features, axis=0)
    median = (ordered[(anchors - 1) // 2] + ordered[anchors // 2]) / 2
    labels: np.ndarray = ((features > median) * 2 ** np.arange(count)).sum(axis=1)
    return labels
