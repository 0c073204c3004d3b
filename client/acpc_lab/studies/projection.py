"""t-SNE coordinates of representations: for the eye, never for a number."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from acpc_lab.extras import load
from acpc_lab.studies.geometry import GeometryParameters
from acpc_lab.tables import Arrays


def embedded(arrays: Arrays, parameters: GeometryParameters) -> dict[str, NDArray[Any]]:
    """The arrays and the t-SNE coordinates of each space, which take a while to compute.

    Raises:
        FailedPrecondition: scikit-learn is not installed.
    """
    found: dict[str, NDArray[Any]] = dict(arrays)
    for name in arrays:
        stem, _, last = name.rpartition("_")
        if last == "clean":
            clean, views = arrays[name], arrays[f"{stem}_views"]
            found[f"{stem}_tsne"] = tsne(clean, views, parameters)
    return found


def tsne(
    clean: NDArray[np.floating], views: NDArray[np.floating], parameters: GeometryParameters
) -> NDArray[np.float32]:
    """Coordinates (n, 1 + views, 2); the clean view comes first. For the eye only.

    Raises:
        FailedPrecondition: scikit-learn is not installed.
    """
    points = np.concatenate([clean[:, None], views], axis=1)  # (n, 1 + views, dim)
    flat = points.reshape(-1, points.shape[-1]).astype(np.float64)
    manifold = load("sklearn.manifold")
    perplexity = min(parameters.perplexity, (len(flat) - 1) / 3)
    projection = manifold.TSNE(perplexity=perplexity, init="pca", random_state=parameters.seed)
    # Threads sum in an order of their own, and t-SNE magnifies it.
    with load("threadpoolctl").threadpool_limits(1):
        placed: NDArray[np.float32] = projection.fit_transform(flat).astype(np.float32)
    return placed.reshape(*points.shape[:2], 2)
