"""Error-drift and planner studies against loops over groups and scikit-learn's ridge."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from acpc_client.errors import ArgumentError
from acpc_lab.studies.drift import CONTROLS
from acpc_lab.studies.statistics import held_out_errors
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from study_examples import drift_columns, joined, planner_columns, summary, where


def left_out(groups: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for group in dict.fromkeys(groups.tolist()):
        yield groups != group, groups == group


def errors_of(
    features: list[np.ndarray], y: np.ndarray, groups: np.ndarray, alpha: float = 1.0
) -> np.ndarray:
    """Of scikit-learn's ridge, fitted on the other groups alone."""
    x = np.stack(features, axis=1)
    errors = np.zeros(len(y))
    for rest, fold in left_out(groups):
        model = make_pipeline(StandardScaler(), Ridge(alpha=alpha)).fit(x[rest], y[rest])
        errors[fold] = abs(model.predict(x[fold]) - y[fold])
    return errors


@pytest.mark.parametrize("alpha", [1e-6, 1.0, 100.0])
def test_ridge_is_that_of_scikit_learn(alpha: float) -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(60, 4)) * [1, 1e3, 1e-3, 1] + [0, 5e3, 0, 7]
    x[:, 3] = 7.1  # constant: standardised to nothing
    y = x[:, 0] + x[:, 1] / 1e3 + random.normal(size=60)
    groups = np.repeat(["a", "b", "c"], [10, 20, 30])
    ours, theirs = (of(list(x.T), y, groups, alpha) for of in (held_out_errors, errors_of))
    np.testing.assert_allclose(ours, theirs, rtol=1e-8)


def test_the_drift_study_agrees_with_loops() -> None:
    columns = drift_columns()
    found = summary("drift", columns)
    reductions: dict[str, list[tuple[float, float]]] = {}
    cells = [(task, run) for task in ("t0", "t1") for run in ("0", "1")]
    for cell, controls, (task, run) in zip(found.cells, found.controls, cells, strict=True):
        mine = where(columns, (columns["task"] == task) & (columns["run"] == run))
        base = [mine["severity"], mine["encoder_shift"], mine["acpc_one_step"]]
        names = ("acpc", *(f"acpc_{name}" for name in CONTROLS))
        plain = errors_of(base, mine["drift"], mine["group"])
        acpc, *others = (
            errors_of([*base, mine[name]], mine["drift"], mine["group"]) for name in names
        )
        means = [error.mean() for error in others]
        best = int(np.argmin(means))
        folds = [fold for _, fold in left_out(mine["group"])]
        wins = sum(acpc[fold].mean() < others[best][fold].mean() for fold in folds)
        np.testing.assert_allclose(
            [cell.base, *controls, cell.control, cell.acpc],
            [plain.mean(), *means, means[best], acpc.mean()],
            rtol=1e-9,
        )
        assert (cell.selected, cell.wins, cell.folds) == (CONTROLS[best], wins, 5)
        lower = (1 - acpc.mean() / plain.mean(), 1 - acpc.mean() / means[best])
        reductions.setdefault(run, []).append(lower)
    by_run = np.array([np.mean(values, axis=0) for values in reductions.values()])
    for column, spread in enumerate((found.reduction.over_base, found.reduction.over_control)):
        assert spread.mean == pytest.approx(by_run[:, column].mean())
        gap = by_run[0, column] - by_run[1, column]
        assert spread.sd == pytest.approx(abs(gap) / math.sqrt(2))
    assert found.bound_violations == 0
    assert found.tightest == pytest.approx((columns["drift"] / columns["acpc"]).max())


def test_identity_checks_take_no_part_and_violations_are_counted() -> None:
    columns = drift_columns(1, 1)
    plain = summary("drift", columns)
    still = where(columns, np.arange(3)) | {"severity": np.zeros(3), "drift": np.zeros(3)}
    still |= {"anchor": np.arange(90, 93), "perturbed_error": still["clean_error"]}
    arrays = {"0.identity_acpc": np.array([0.0, 1e-6]), "0.other": np.array([5.0])}
    with_still = summary("drift", joined(columns, still), arrays)
    assert (plain.largest_identity, with_still.largest_identity) == (None, 1e-6)
    assert plain.cells == with_still.cells
    columns["acpc"] = np.where(np.arange(len(columns["acpc"])) < 4, 0.0, columns["acpc"])
    assert summary("drift", columns).bound_violations == 4


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
    given: dict[str, Any], pool: str, distance: str
) -> None:
    """Of three levels the two augmented ones are one condition, in either reading."""
    columns = planner_columns(levels=(0.0, 0.04, 0.08))
    summed = summary("planner", columns, **given)
    found = {(cell.task, cell.run): (cell.baseline, cell.expanded) for cell in summed.cells}
    reductions = []
    for run in ("0", "1", "2"):
        mine = where(columns, columns["run"] == run)
        base = [mine["severity"], np.where(mine["level"] > 0, 1.0, 0.0)]
        base += [np.log1p(mine[pool + name]) for name in ("acpc_one_step_q90", "clean_gap")]
        target = np.log1p(mine["selection_regret"])
        plain = errors_of(base, target, mine["task"])
        more = errors_of([*base, np.log1p(mine[pool + distance])], target, mine["task"])
        means = []
        for task in ("t0", "t1", "t2", "t3"):
            fold = mine["task"] == task
            means.append((plain[fold].mean(), more[fold].mean()))
            assert found[task, run] == pytest.approx(means[-1], rel=1e-9)
        baseline, expanded = np.mean(means, axis=0)
        reductions.append(1 - expanded / baseline)
    assert summed.reduction.mean == pytest.approx(np.mean(reductions))
    assert summed.reduction.sd == pytest.approx(np.std(reductions, ddof=1))
    assert summed.improved == sum(after < before for before, after in found.values())
    assert summed.changed == pytest.approx((columns["first_divergence"] >= 0).mean())
    assert summed.mean_regret == pytest.approx(columns["selection_regret"].mean())
    assert (summed.rows, summed.certified, summed.broken_certificates) == (864, 0, 0)
    assert (summed.candidate_pairs, summed.bound_violations) == (864 * 512, 0)


def test_rows_without_optional_columns_have_the_papers_features_alone() -> None:
    columns = planner_columns(2, 1)
    new = ("displacement_q90", "candidate_pairs", "bound_violations")
    few = {k: v for k, v in columns.items() if k not in new and not k.startswith("first_a")}
    found = summary("planner", few)
    assert (found.candidate_pairs, found.bound_violations) == (None, None)
    assert found.cells == summary("planner", columns).cells
    for given, words in [
        ({"pool": "first"}, "first_acpc_one_step_q90: is missing"),
        ({"distance": "displacement"}, "displacement_q90: is missing"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            summary("planner", few, **given)


def test_broken_bounds_and_certified_runs_that_diverge_are_counted() -> None:
    columns = planner_columns(2, 1)
    columns["bound_violations"][[3, 7]] = (2, 1)
    columns["certified"][:5] = 1
    columns["first_divergence"][:5] = [-1, -1, 0, 3, -1]
    found = summary("planner", columns)
    assert (found.bound_violations, found.broken_certificates) == (3, 2)
    assert found.certified == pytest.approx(5 / 96)
