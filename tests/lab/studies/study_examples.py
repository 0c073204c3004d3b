"""Small studies that several tests start from."""

from __future__ import annotations

from typing import Any

import numpy as np
from acpc_lab.studies import STUDIES, Evidence
from acpc_lab.studies.geometry import GeometryParameters, GeometryRows, embedded, measure


def geometry() -> Evidence:
    """A small geometry study with representations and their t-SNE coordinates."""
    random = np.random.default_rng(0)
    clean = random.normal(size=(12, 4)).astype(np.float32)
    views = (clean[:, None] + random.normal(size=(12, 6, 4)) * 0.1).astype(np.float32)
    found = measure(clean, views)
    columns: dict[str, Any] = {"task": ["push"] * 12, "run": ["0"] * 12, "level": [0.0] * 12,
                               "anchor": np.arange(12)}  # fmt: skip
    arrays = {}
    for space in ("encoder", "rollout"):
        arrays |= {f"0.{space}_clean": clean, f"0.{space}_views": views}
        columns[f"{space}_radius"] = found.radius
        columns[f"{space}_nearest"] = found.nearest
        columns[f"{space}_disjoint"] = found.disjoint
    parameters = GeometryParameters(highlighted=5, perplexity=10)
    placed = embedded(arrays, parameters)
    return Evidence.of(STUDIES["geometry"], GeometryRows.of(columns), parameters, placed)
