"""Small studies that several tests start from: columns of each, and what follows from them."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from acpc_lab.studies import STUDIES, Evidence
from acpc_lab.studies.drift import CONTROLS
from acpc_lab.studies.geometry import GeometryParameters, embedded, measure
from threshold_reference import Cells

Columns = dict[str, Any]
LEVELS = [level / 100 for level in range(9)]


def evidence(
    name: str, columns: Columns, arrays: Columns | None = None, **parameters: Any
) -> Evidence:
    study = STUDIES[name]
    return Evidence.of(study, study.rows.of(columns), study.parameters(**parameters), arrays)


def summary(name: str, columns: Columns, arrays: Columns | None = None, **parameters: Any) -> Any:
    return evidence(name, columns, arrays, **parameters).summary


def rows(names: str, values: Iterable[Sequence[Any]]) -> Columns:
    """Columns from rows."""
    return dict(zip(names.split(), map(np.array, zip(*values, strict=True)), strict=True))


def where(columns: Columns, held: Any) -> Columns:
    """The rows of a mask, or of indices."""
    return {name: np.asarray(values)[held] for name, values in columns.items()}


def _grid(*sizes: int) -> list[np.ndarray]:
    return [axis.ravel() for axis in np.meshgrid(*map(np.arange, sizes), indexing="ij")]


def drift_columns(tasks: int = 2, runs: int = 2) -> Columns:
    """Rows in which drift follows H-step ACPC, and each control follows it a little."""
    random = np.random.default_rng(0)
    task, run, anchor, shift, draw = _grid(tasks, runs, 24, 2, 2)

    def near(low: float, high: float) -> np.ndarray:
        return reach * random.uniform(low, high, len(task))

    severity = np.array([0.02, 0.08])[shift]
    reach = severity * (1 + task)
    reach = near(5, 20)
    clean = random.uniform(1, 3, len(task))
    perturbed = clean + near(0.3, 0.9)
    return {
        "task": np.char.add("t", task.astype(str)), "run": run.astype(str), "anchor": anchor,
        "group": anchor % 5, "shift": shift, "severity": severity, "draw": draw,
        "encoder_shift": near(0.5, 2), "acpc_one_step": near(0.5, 2), "acpc": reach,
        **{f"acpc_{name}": near(0.7, 1.5) for name in CONTROLS},
        "clean_error": clean, "perturbed_error": perturbed, "drift": perturbed - clean,
    }  # fmt: skip


def planner_columns(
    tasks: int = 4, runs: int = 3, levels: Sequence[float] = (0.0, 0.08)
) -> Columns:
    """Rows in which regret follows the distance at the planner's horizon."""
    random = np.random.default_rng(3)
    task, run, at, anchor, shift = _grid(tasks, runs, len(levels), 8, 3)

    def near(low: float, high: float) -> np.ndarray:
        return reach * random.uniform(low, high, len(task))

    severity, level = np.array([0.02, 0.05, 0.08])[shift], np.array(levels)[at]
    reach = severity / (1 + 20 * level)
    reach = near(5, 30)
    return {
        "task": np.char.add("t", task.astype(str)), "run": run.astype(str), "level": level,
        "anchor": anchor, "shift": shift, "severity": severity, "draw": np.zeros_like(task),
        "acpc_one_step_q90": near(0.5, 2), "acpc_q90": reach,
        "clean_gap": random.uniform(0, 1, len(task)),
        "selection_regret": np.maximum(0, reach * near(-0.2, 2)),
        "first_divergence": random.integers(-1, 4, len(task)), "certified": np.zeros_like(task),
        "displacement_q90": near(1, 4), "first_acpc_one_step_q90": near(0.5, 2),
        "first_acpc_q90": near(0.9, 1.1), "first_displacement_q90": near(1, 4),
        "first_clean_gap": random.uniform(0, 1, len(task)),
        "candidate_pairs": np.full_like(task, 512), "bound_violations": np.zeros_like(task),
    }  # fmt: skip


def sensitivity_columns(anchors: int = 60, probes: int = 4) -> Columns:
    """Two levels of which the second has a tenth of the first, anchor by anchor."""
    random = np.random.default_rng(0)
    at, method, anchor, probe = _grid(2, 2, anchors, probes)
    scale = random.uniform(1, 9, anchors)  # shared: the same anchors are sensitive for both
    noise = random.uniform(0.8, 1.2, len(at))
    return {
        "task": np.full(len(at), "maze"), "run": np.full(len(at), "0"), "level": 0.08 * at,
        "anchor": anchor, "method": method, "probe": probe,
        "squared_norm": np.array([1.0, 0.1])[at] * scale[anchor] * noise,
    }  # fmt: skip


def clouds(seed: int, spread: float, count: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """Clean points (count, 6), and views of each (count, 18, 6)."""
    random = np.random.default_rng(seed)
    clean = random.normal(size=(count, 6)).astype(np.float32)
    noise = random.normal(size=(count, 18, 6)) * spread * random.random((count, 1, 1))
    return clean, (clean[:, None] + noise).astype(np.float32)


def geometry_columns(*by_level: tuple[np.ndarray, np.ndarray]) -> tuple[Columns, Columns]:
    """Columns and arrays of one checkpoint a level, alike in both spaces."""
    parts, arrays = [], {}
    for index, (clean, views) in enumerate(by_level):
        found, n = measure(clean, views), len(clean)
        part: Columns = {"task": ["push"] * n, "run": ["0"] * n, "level": [index / 10] * n,
                         "anchor": np.arange(n)}  # fmt: skip
        for space in ("encoder", "rollout"):
            arrays |= {f"{index}.{space}_clean": clean, f"{index}.{space}_views": views}
            part |= {f"{space}_{name}": values for name, values in found._asdict().items()}
        parts.append(part)
    return {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}, arrays


def geometry() -> Evidence:
    """A small geometry study with representations and their t-SNE coordinates."""
    columns, arrays = geometry_columns(clouds(0, 0.1, 12))
    picture: Columns = {"highlighted": 5, "perplexity": 10.0}
    placed = embedded(arrays, GeometryParameters(**picture))
    return evidence("geometry", columns, placed, **picture)


def horizon_columns() -> Columns:
    """One task, three runs whose IR falls to a tenth, a half and a fifth times the horizon."""
    return rows(
        "task run level horizon quantile ir_raw",
        [
            ("a", run, level, horizon, 0.9, value)
            for run, ratio in (("0", 0.1), ("1", 0.5), ("2", 0.2))
            for horizon in (8, 1)
            for level, value in ((0.0, 4.0), (0.04, 3.0), (0.08, 4.0 * ratio * horizon))
        ],
    )


COLLAPSE: Columns = {
    "checkpoint": ["fine", "flat", "half"], "median_latent_distance": [10, 0.05, 5],
    "ir_raw": [1.0, 2.0, 0.5], "sr": [0.9, 0.1, 0.95],
}  # fmt: skip
PAIR: Columns = {"task": ["a"], "run": ["0"], "shift": ["blur"], "ir_rel": [0.2], "sr": [0.97],
                 "success_gain": [5.0]}  # fmt: skip
SWEEP: Columns = {
    "task": ["a"] * 3 + ["b"] * 3, "run": ["0"] * 6, "level": [0.0, 1.0, 2.0] * 2,
    "ir_rel": [1, 0.5, 0.09, 1, 0.18, 0.18], "sr": [1.0] * 6,
    "success_noisy": [0, 10, 90, 0, 90, 90], "success_clean": [90.0] * 6,
}  # fmt: skip
"""Two tasks; a recovers at level 2 alone, b at both."""


def sweep_columns(cells: Cells, levels: Sequence[float] = LEVELS, **more: str) -> Columns:
    """The columns of a sweep; ``more`` are texts that every row has."""
    names = list(next(iter(cells.values())))
    values = [
        (task, run, level, *(found[name][index] for name in names))
        for (task, run), found in cells.items()
        for index, level in enumerate(levels)
    ]
    columns = rows(" ".join(("task run level", *names)), values)
    return columns | {name: np.full(len(values), text) for name, text in more.items()}


def joined(*parts: Columns) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


EXAMPLES: dict[str, Columns] = {
    "thresholds": SWEEP, "shifts": PAIR, "drift": drift_columns(1, 1),
    "planner": planner_columns(2, 1), "geometry": geometry_columns(clouds(2, 0.5, 12))[0],
    "sensitivity": sensitivity_columns(3, 2), "horizons": horizon_columns(), "collapse": COLLAPSE,
}  # fmt: skip
"""Columns of every study."""
