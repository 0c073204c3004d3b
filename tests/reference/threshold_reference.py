"""The threshold study as float64 loops, in the paper's reading and in the released code's.

A sweep is a mapping from (task, run) to columns over the levels, the unaugmented checkpoint first.
The two readings differ in how ties are broken (by runs, or by checkpoints) and in what "no onset on
the grid" counts: one step past the last level, or plus or minus 1.0 in units of sigma_max.
"""

import itertools
from collections.abc import Sequence

import numpy as np

Cells = dict[tuple[str, str], dict[str, list[float]]]


def recovered(values: dict[str, list[float]]) -> list[bool]:
    """Par. "Success-rate criterion", by level."""
    noisy, clean = values["success_noisy"], values["success_clean"]
    wanted = noisy[0] + 0.8 * (max(noisy) - noisy[0])
    return [
        n >= wanted - 1e-9 and c >= clean[0] - 5 - 1e-9 for n, c in zip(noisy, clean, strict=True)
    ]


def accepted(values: dict[str, list[float]], t_ir: float, t_sr: float) -> list[bool]:
    """Which levels pass the screen."""
    return [i <= t_ir and s >= t_sr for i, s in zip(values["ir_rel"], values["sr"], strict=True)]


def first(flags: list[bool]) -> int:
    return flags.index(True) if any(flags) else len(flags)


def measures(values: dict[str, list[float]], t_ir: float, t_sr: float) -> dict[str, float]:
    """One run: the onset, by how many runs it is early or late, and the agreement."""
    truth, taken = recovered(values), accepted(values, t_ir, t_sr)
    both = list(zip(taken, truth, strict=True))
    tp, fp = both.count((True, True)), both.count((True, False))
    fn, tn = both.count((False, True)), both.count((False, False))
    rates = [a / b for a, b in ((tp, tp + fn), (tn, tn + fp)) if b]
    onset = first(taken) - first(truth)
    return {
        "onset": onset,
        "early": onset < 0,
        "late": onset > 0,
        "ba": sum(rates) / len(rates),
        "p": tp / (tp + fp) if tp + fp else float("nan"),
        "r": tp / (tp + fn) if tp + fn else float("nan"),
    }


def released_measures(
    values: dict[str, list[float]], t_ir: float, t_sr: float, levels: Sequence[float]
) -> dict[str, float]:
    """One run as the released code counts it; the onset is in units of sigma_max."""
    truth, taken = recovered(values), accepted(values, t_ir, t_sr)
    onset = 0.0
    if any(taken) and any(truth):
        onset = levels[first(taken)] - levels[first(truth)]
    elif any(taken) or any(truth):
        onset = -1.0 if any(taken) else 1.0
    early = sum(flag for level, flag in enumerate(taken) if any(truth) and level < first(truth))
    late = sum(real and not flag for real, flag in zip(truth, taken, strict=True))
    return measures(values, t_ir, t_sr) | {"onset": onset, "early": early, "late": late}


def over_tasks(
    cells: Cells,
    tasks: tuple[str, ...],
    t_ir: float,
    t_sr: float,
    released: Sequence[float] | None = None,
) -> dict[str, float]:
    """Runs averaged in each task, then tasks; ``released`` holds the levels for that reading."""
    by_task = []
    for task in tasks:
        mine = [values for (name, _), values in cells.items() if name == task]
        runs = [
            measures(v, t_ir, t_sr)
            if released is None
            else released_measures(v, t_ir, t_sr, released)
            for v in mine
        ]
        by_task.append(
            {
                "mismatch": np.mean([abs(run["onset"]) for run in runs]),
                "worst": max(abs(run["onset"]) for run in runs),
                **{name: sum(run[name] for run in runs) for name in ("early", "late")},
                **{name: mean_held([run[name] for run in runs]) for name in ("ba", "p", "r")},
            }
        )
    found = {
        name: mean_held([task[name] for task in by_task]) for name in ("mismatch", "ba", "p", "r")
    }
    found["worst"] = max(task["worst"] for task in by_task)
    found |= {name: sum(task[name] for task in by_task) for name in ("early", "late")}
    return found


def mean_held(values: list[float]) -> float:
    held = [value for value in values if not np.isnan(value)]
    return float(np.mean(held)) if held else float("nan")


def chosen(
    cells: Cells,
    source: tuple[str, ...],
    grids: tuple[Sequence[float], Sequence[float]],
    released: Sequence[float] | None = None,
) -> tuple[float, float]:
    """Par. "Threshold grids"; equal but for rounding counts as a tie."""

    def rank(pair: tuple[float, float]) -> tuple[float, ...]:
        found = over_tasks(cells, source, *pair, released)
        order = (found["mismatch"], found["early"], found["late"], -found["ba"], pair[0], -pair[1])
        return tuple(round(value, 9) for value in order)

    return min(itertools.product(*grids), key=rank)
