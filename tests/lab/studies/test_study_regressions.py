"""Error-drift and planner studies against closed-form ridge in loops, and against scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from acpc_client.errors import ArgumentError
from acpc_lab.studies import STUDIES, Evidence
from acpc_lab.studies.drift import CONTROLS, DriftRows, DriftSummary
from acpc_lab.studies.planner import PlannerParameters, PlannerRows, PlannerSummary
from acpc_lab.studies.statistics import Spread, held_out_errors
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

Columns = dict[str, Any]


def drift_columns(tasks: int = 2, runs: int = 2, seed: int = 0) -> Columns:
    """Rows in which drift follows H-step ACPC, and each control follows it a little."""
    random = np.random.default_rng(seed)
    columns: Columns = {field.name: [] for field in DriftRows.fields()}
    for task in range(tasks):
        for run in range(runs):
            for anchor in range(24):
                clean = random.uniform(1, 3)
                for shift, severity in enumerate((0.02, 0.08)):
                    for draw in range(2):
                        reach = severity * random.uniform(5, 20) * (1 + task)
                        drift = reach * random.uniform(0.3, 0.9)
                        values = {
                            "task": f"t{task}", "run": str(run), "anchor": anchor,
                            "group": anchor % 5, "shift": shift, "severity": severity,
                            "draw": draw, "encoder_shift": reach * random.uniform(0.5, 2),
                            "acpc_one_step": reach * random.uniform(0.5, 2), "acpc": reach,
                            "clean_error": clean, "perturbed_error": clean + drift,
                            "drift": (clean + drift) - clean,
                        }  # fmt: skip
                        for name in CONTROLS:
                            values[f"acpc_{name}"] = reach * random.uniform(0.7, 1.5)
                        for name, value in values.items():
                            columns[name].append(value)
    return {name: np.array(values) for name, values in columns.items()}


def ridge_by_hand(x: np.ndarray, y: np.ndarray, unseen: np.ndarray, alpha: float) -> np.ndarray:
    """Closed form with an explicit intercept column that carries no penalty."""
    mean, spread = x.mean(axis=0), x.std(axis=0)
    spread[spread == 0] = 1
    ones = np.ones((len(x), 1))
    design = np.hstack([(x - mean) / spread, ones])
    penalty = alpha * np.eye(design.shape[1])
    penalty[-1, -1] = 0
    weights = np.linalg.inv(design.T @ design + penalty) @ design.T @ y
    return np.hstack([(unseen - mean) / spread, np.ones((len(unseen), 1))]) @ weights


def left_out(groups: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for group in dict.fromkeys(groups.tolist()):
        yield groups != group, groups == group


def mae_by_hand(features: list[np.ndarray], y: np.ndarray, groups: np.ndarray) -> np.ndarray:
    x = np.stack(features, axis=1)
    errors = np.zeros(len(y))
    for rest, fold in left_out(groups):
        errors[fold] = abs(ridge_by_hand(x[rest], y[rest], x[fold], 1.0) - y[fold])
    return errors


@pytest.mark.parametrize("alpha", [1e-6, 1.0, 100.0])
def test_ridge_is_that_of_scikit_learn_and_of_the_closed_form(alpha: float) -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(60, 4)) * [1, 1e3, 1e-3, 1] + [0, 5e3, 0, 7]
    x[:, 3] = 7.1  # constant: standardised to nothing
    y = x[:, 0] + x[:, 1] / 1e3 + random.normal(size=60)
    groups = np.repeat(["a", "b", "c"], [10, 20, 30])
    ours = held_out_errors(list(x.T), y, groups, alpha)
    for rest, fold in left_out(groups):
        model = make_pipeline(StandardScaler(), Ridge(alpha=alpha)).fit(x[rest], y[rest])
        np.testing.assert_allclose(ours[fold], abs(model.predict(x[fold]) - y[fold]), rtol=1e-8)
        by_hand = ridge_by_hand(x[rest], y[rest], x[fold], alpha)
        np.testing.assert_allclose(ours[fold], abs(by_hand - y[fold]), rtol=1e-6)


def test_a_group_is_never_seen_by_the_ridge_that_predicts_it() -> None:
    """Changing the target of one group changes no prediction of that group."""
    random = np.random.default_rng(2)
    x, groups = random.normal(size=(40, 2)), np.repeat(np.arange(4), 10)
    y = random.normal(size=40)
    before = held_out_errors(list(x.T), y, groups, 1.0)[:10]
    far = y + np.where(groups == 0, 1e6, 0)
    after = held_out_errors(list(x.T), far, groups, 1.0)[:10]
    residual = np.abs(np.abs(after - 1e6) - before)
    signed = np.minimum(residual, np.abs(after - 1e6 + before))
    assert signed.max() < 1e-6


def test_one_group_cannot_be_left_out() -> None:
    with pytest.raises(ArgumentError, match="found 1, wanted at least 2"):
        held_out_errors([np.zeros(3)], np.zeros(3), np.zeros(3), 1.0)


def test_the_drift_study_agrees_with_loops() -> None:
    columns = drift_columns()
    summary = Evidence.of(STUDIES["drift"], DriftRows.of(columns)).summary
    assert isinstance(summary, DriftSummary)
    reductions: dict[str, list[tuple[float, float]]] = {}
    cells = [(task, run) for task in ("t0", "t1") for run in ("0", "1")]
    for cell, controls, (task, run) in zip(summary.cells, summary.controls, cells, strict=True):
        mask = (columns["task"] == task) & (columns["run"] == run)
        mine = {name: values[mask] for name, values in columns.items()}
        base = [mine["severity"], mine["encoder_shift"], mine["acpc_one_step"]]

        def errors(*more: str, base: list[np.ndarray] = base, mine: Columns = mine) -> np.ndarray:
            features = [*base, *(mine[name] for name in more)]
            return mae_by_hand(features, mine["drift"], mine["group"])

        with_controls = {name: errors(f"acpc_{name}") for name in CONTROLS}
        best = min(with_controls, key=lambda name: with_controls[name].mean())
        acpc = errors("acpc")
        wins = sum(
            acpc[fold].mean() < with_controls[best][fold].mean()
            for _, fold in left_out(mine["group"])
        )
        np.testing.assert_allclose(
            [cell.base, *controls, cell.acpc],
            [errors().mean(), *(error.mean() for error in with_controls.values()), acpc.mean()],
            rtol=1e-9,
        )
        assert (cell.selected, cell.wins, cell.folds) == (best, wins, 5)
        assert cell.control == min(controls)
        reductions.setdefault(run, []).append(
            (1 - acpc.mean() / errors().mean(), 1 - acpc.mean() / with_controls[best].mean())
        )
    by_run = np.array([np.mean(values, axis=0) for values in reductions.values()])
    for column, spread in enumerate((summary.reduction.over_base, summary.reduction.over_control)):
        assert spread.mean == pytest.approx(by_run[:, column].mean())
        gap = by_run[0, column] - by_run[1, column]
        assert spread.sd == pytest.approx(abs(gap) / math.sqrt(2))
    assert summary.bound_violations == 0
    assert summary.tightest == pytest.approx((columns["drift"] / columns["acpc"]).max())


def test_identity_checks_take_no_part_and_violations_are_counted() -> None:
    columns = drift_columns(1, 1)
    plain = Evidence.of(STUDIES["drift"], DriftRows.of(columns)).summary
    still = {name: values[:3].copy() for name, values in columns.items()}
    still |= {"severity": np.zeros(3), "anchor": np.arange(90, 93), "drift": np.zeros(3)}
    still["perturbed_error"] = still["clean_error"]
    joined = {name: np.concatenate([columns[name], still[name]]) for name in columns}
    arrays = {"0.identity_acpc": np.array([0.0, 1e-6]), "0.other": np.array([5.0])}
    with_still = Evidence.of(STUDIES["drift"], DriftRows.of(joined), None, arrays).summary
    assert (plain.largest_identity, with_still.largest_identity) == (None, 1e-6)
    assert plain.cells == with_still.cells
    columns["acpc"] = np.where(np.arange(len(columns["acpc"])) < 4, 0.0, columns["acpc"])
    broken = Evidence.of(STUDIES["drift"], DriftRows.of(columns)).summary
    assert broken.bound_violations == 4


def test_what_cannot_be_drift_is_refused() -> None:
    columns = drift_columns(1, 1)
    same = columns["clean_error"]
    for change, words in [
        ({"drift": columns["drift"] * 1.01}, "drift: row 1: found"),
        ({"severity": np.zeros(len(same))}, "is 0 in every row"),
        ({"draw": np.zeros(len(same), int)}, "row 2 repeats row 1"),
        ({"perturbed_error": same, "drift": np.zeros(len(same))}, "predicted without error"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            Evidence.of(STUDIES["drift"], DriftRows.of({**columns, **change}))
    with pytest.raises(ArgumentError, match=r"alpha: found 0, wanted a number in \(0, inf\)"):
        STUDIES["drift"].parameters(0)


def planner_columns(
    tasks: int = 4, runs: int = 3, seed: int = 3, levels: Sequence[float] = (0.0, 0.08)
) -> Columns:
    random = np.random.default_rng(seed)
    columns: Columns = {field.name: [] for field in PlannerRows.fields()}
    for task in range(tasks):
        for run in range(runs):
            for level in levels:
                for anchor in range(8):
                    for shift, severity in enumerate((0.02, 0.05, 0.08)):
                        reach = severity * random.uniform(5, 30) / (1 + 20 * level)
                        values = {
                            "task": f"t{task}", "run": str(run), "level": level, "anchor": anchor,
                            "shift": shift, "severity": severity, "draw": 0,
                            "acpc_one_step_q90": reach * random.uniform(0.5, 2), "acpc_q90": reach,
                            "clean_gap": random.uniform(0, 1),
                            "selection_regret": max(0, reach**2 * random.uniform(-0.2, 2)),
                            "first_divergence": int(random.integers(-1, 4)), "certified": 0,
                            "displacement_q90": 2 * reach * random.uniform(0.5, 2),
                            "first_acpc_one_step_q90": reach * random.uniform(0.5, 2),
                            "first_acpc_q90": reach * random.uniform(0.9, 1.1),
                            "first_displacement_q90": 2 * reach * random.uniform(0.5, 2),
                            "first_clean_gap": random.uniform(0, 1),
                            "candidate_pairs": 512, "bound_violations": 0,
                        }  # fmt: skip
                        for name, value in values.items():
                            columns[name].append(value)
    return {name: np.array(values) for name, values in columns.items()}


@pytest.mark.parametrize(
    ("given", "pool", "distance"),
    [
        ({}, "", "acpc_q90"),
        ({"reading": "released"}, "first_", "displacement_q90"),
        ({"reading": "released", "pool": "last"}, "", "displacement_q90"),
        ({"pool": "first"}, "first_", "acpc_q90"),
    ],
    ids=["paper", "released", "released, last pool", "first pool"],
)
def test_the_planner_study_agrees_with_loops(
    given: dict[str, str], pool: str, distance: str
) -> None:
    """Of three levels the two augmented ones are one condition."""
    columns = planner_columns(levels=(0.0, 0.04, 0.08))
    parameters = PlannerParameters(**given)  # type: ignore[arg-type]
    summary = Evidence.of(STUDIES["planner"], PlannerRows.of(columns), parameters).summary
    assert isinstance(summary, PlannerSummary)
    found = {(cell.task, cell.run): (cell.baseline, cell.expanded) for cell in summary.cells}
    reductions = []
    for run in ("0", "1", "2"):
        mask = columns["run"] == run
        mine = {name: values[mask] for name, values in columns.items()}
        base = [mine["severity"], np.where(mine["level"] > 0, 1.0, 0.0)]
        base += [np.log1p(mine[pool + name]) for name in ("acpc_one_step_q90", "clean_gap")]
        target = np.log1p(mine["selection_regret"])
        plain = mae_by_hand(base, target, mine["task"])
        more = mae_by_hand([*base, np.log1p(mine[pool + distance])], target, mine["task"])
        means = []
        for task in ("t0", "t1", "t2", "t3"):
            fold = mine["task"] == task
            means.append((plain[fold].mean(), more[fold].mean()))
            assert found[task, run] == pytest.approx(means[-1], rel=1e-9)
        baseline, expanded = np.mean(means, axis=0)
        reductions.append(1 - expanded / baseline)
    assert summary.reduction.mean == pytest.approx(np.mean(reductions))
    assert summary.reduction.sd == pytest.approx(np.std(reductions, ddof=1))
    assert summary.improved == sum(after < before for before, after in found.values())
    assert summary.changed == pytest.approx((columns["first_divergence"] >= 0).mean())
    assert (summary.rows, summary.certified, summary.broken_certificates) == (864, 0, 0)
    assert (summary.candidate_pairs, summary.bound_violations) == (864 * 512, 0)


def test_rows_of_an_older_release_have_the_papers_features_alone() -> None:
    columns = planner_columns(2, 1)
    new = ("displacement_q90", "candidate_pairs", "bound_violations")
    old = {k: v for k, v in columns.items() if k not in new and not k.startswith("first_a")}
    summary = Evidence.of(STUDIES["planner"], PlannerRows.of(old)).summary
    assert (summary.candidate_pairs, summary.bound_violations) == (None, None)
    whole = Evidence.of(STUDIES["planner"], PlannerRows.of(columns)).summary
    assert summary.cells == whole.cells
    for given, words in [
        ({"pool": "first"}, "first_acpc_one_step_q90: is missing"),
        ({"distance": "displacement"}, "displacement_q90: is missing"),
        ({"pool": "middle"}, "pool: found 'middle', wanted one of last, first"),
        ({"distance": "sum"}, "distance: found 'sum', wanted one of acpc, displacement"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            Evidence.of(STUDIES["planner"], PlannerRows.of(old), PlannerParameters(**given))


def test_pairs_that_break_a_bound_are_counted() -> None:
    columns = planner_columns(2, 1)
    columns["bound_violations"][[3, 7]] = (2, 1)
    assert Evidence.of(STUDIES["planner"], PlannerRows.of(columns)).summary.bound_violations == 3


def test_certified_runs_that_diverge_are_counted() -> None:
    columns = planner_columns(2, 1)
    columns["certified"][:5] = 1
    columns["first_divergence"][:5] = [-1, -1, 0, 3, -1]
    summary = Evidence.of(STUDIES["planner"], PlannerRows.of(columns)).summary
    assert summary.broken_certificates == 2
    assert summary.certified == pytest.approx(5 / 96)


def test_what_cannot_be_a_planner_study_is_refused() -> None:
    columns = planner_columns(2, 1)
    nothing = np.zeros(len(columns["task"]))
    for change, words in [
        ({"task": np.full(len(nothing), "t0")}, "row 49 repeats row 1"),
        ({"selection_regret": nothing}, "predicted without error"),
        ({"selection_regret": nothing - 1}, "found -1.0"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            Evidence.of(STUDIES["planner"], PlannerRows.of({**columns, **change}))
    one = {name: values[:48] for name, values in columns.items()}
    with pytest.raises(ArgumentError, match="run 0 has one task, t0"):
        Evidence.of(STUDIES["planner"], PlannerRows.of(one))


def test_one_run_has_no_deviation() -> None:
    assert math.isnan(Spread.of([0.5]).sd)
    assert Spread.of([1.0, 2.0, 4.0]).sd == pytest.approx(np.std([1, 2, 4], ddof=1))
