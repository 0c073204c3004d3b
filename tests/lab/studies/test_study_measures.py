"""Local geometry, local sensitivity, horizons, collapse and shifts against loops and SciPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from acpc_client.errors import ArgumentError
from acpc_lab.studies import STUDIES, Evidence, chosen_elsewhere
from acpc_lab.studies.collapse import CollapseRows
from acpc_lab.studies.geometry import GeometryRows, envelope, measure
from acpc_lab.studies.horizons import HorizonRows
from acpc_lab.studies.recovery import SweepRows
from acpc_lab.studies.sensitivity import SensitivityRows
from acpc_lab.studies.shifts import ShiftPair, ShiftRows
from acpc_lab.studies.statistics import average_ranks, spearman
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

Columns = dict[str, Any]


# --- geometry ------------------------------------------------------------------------------------


def clouds(seed: int, spread: float, count: int = 128) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    clean = random.normal(size=(count, 6)).astype(np.float32)
    noise = random.normal(size=(count, 18, 6)) * spread * random.random((count, 1, 1))
    return clean, (clean[:, None] + noise).astype(np.float32)


@pytest.mark.parametrize("spread", [0.02, 0.2, 2.0])
def test_geometry_is_that_of_brute_force(spread: float) -> None:
    clean, views = clouds(0, spread, 30)
    found = measure(clean, views)
    n = len(clean)
    for i in range(n):
        radius = max(math.dist(view, clean[i]) for view in views[i])
        others = [math.dist(clean[i], clean[j]) for j in range(n) if j != i]
        assert found.radius[i] == pytest.approx(radius, rel=1e-12)
        assert found.nearest[i] == pytest.approx(min(others), rel=1e-12)
        apart = all(
            math.dist(clean[i], clean[j])
            > radius + max(math.dist(view, clean[j]) for view in views[j])
            for j in range(n)
            if j != i
        )
        assert found.disjoint[i] == apart


def geometry_rows(*clouds_by_level: tuple[np.ndarray, np.ndarray]) -> tuple[GeometryRows, Columns]:
    parts, arrays = [], {}
    for index, (clean, views) in enumerate(clouds_by_level):
        found = measure(clean, views)
        n = len(clean)
        columns: Columns = {"task": ["push"] * n, "run": ["0"] * n, "level": [index / 10] * n,
                            "anchor": np.arange(n)}  # fmt: skip
        for space in ("encoder", "rollout"):
            arrays |= {f"{index}.{space}_clean": clean, f"{index}.{space}_views": views}
            columns |= {
                f"{space}_radius": found.radius,
                f"{space}_nearest": found.nearest,
                f"{space}_disjoint": found.disjoint,
            }
        parts.append(GeometryRows.of(columns))
    return GeometryRows.joined(parts), arrays


def test_geometry_summaries_are_medians_and_shares_of_the_anchors() -> None:
    rows, arrays = geometry_rows(clouds(1, 0.5), clouds(1, 0.05))
    from_rows = Evidence.of(STUDIES["geometry"], rows).summary
    from_arrays = Evidence.of(STUDIES["geometry"], rows, None, arrays).summary
    assert from_rows == from_arrays
    for item in from_arrays.spaces:
        found = measure(*clouds(1, 0.5 if item.level == 0 else 0.05))
        ratios = sorted(found.radius / found.nearest)
        assert item.median_ratio == pytest.approx((ratios[63] + ratios[64]) / 2)
        assert item.below_nearest == sum(ratio < 1 for ratio in ratios) / 128
        assert item.disjoint * 128 == found.disjoint.sum()
    loose, _, tight, _ = from_arrays.spaces
    assert tight.median_ratio < loose.median_ratio
    assert tight.disjoint > loose.disjoint


def test_geometry_refuses_rows_that_disagree_with_their_representations() -> None:
    rows, arrays = geometry_rows(clouds(2, 0.5, 12))
    other = {**arrays, "0.rollout_views": arrays["0.rollout_views"] * 1.01}
    with pytest.raises(ArgumentError, match="rollout_radius: the rows do not agree"):
        Evidence.of(STUDIES["geometry"], rows, None, other)
    with pytest.raises(ArgumentError, match=r"0\.encoder_clean is missing"):
        Evidence.of(STUDIES["geometry"], rows, None, {"0.rollout_clean": arrays["0.rollout_clean"]})
    twins = rows.columns() | {"encoder_nearest": np.zeros(12)}
    with pytest.raises(ArgumentError, match="two anchors have one representation"):
        Evidence.of(STUDIES["geometry"], GeometryRows.of(twins))
    for clean, views in [
        ((3,), (3, 2)),
        ((3, 2), (2, 4, 2)),
        ((1, 2), (1, 4, 2)),
        ((3, 2), (3, 0, 2)),
    ]:
        with pytest.raises(ArgumentError, match="wanted"):
            measure(np.zeros(clean), np.zeros(views))


def test_the_envelope_encloses_its_share_of_a_gaussian() -> None:
    random = np.random.default_rng(4)
    mixing = np.array([[2.0, 0.0], [1.5, 0.4]])
    points = random.normal(size=(40_000, 2)) @ mixing.T + [3, -1]
    centre, width, height, angle = envelope(points, 0.90)
    turn = math.radians(angle)
    along = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    inside = ((points - centre) @ along.T / (np.array([width, height]) / 2)) ** 2
    assert (inside.sum(axis=1) <= 1).mean() == pytest.approx(0.90, abs=0.01)


# --- sensitivity ---------------------------------------------------------------------------------


def sensitivity_columns(seed: int = 0, anchors: int = 60, probes: int = 4) -> Columns:
    random = np.random.default_rng(seed)
    rows = []
    scale = random.uniform(1, 9, anchors)  # shared: the same anchors are sensitive for both
    for level, factor in ((0.0, 1.0), (0.08, 0.1)):
        for method in (0, 1):
            for anchor in range(anchors):
                for probe in range(probes):
                    value = factor * scale[anchor] * random.uniform(0.8, 1.2)
                    rows.append(("maze", "0", level, anchor, method, probe, value))
    names = [field.name for field in SensitivityRows.fields()]
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def test_sensitivity_means_and_standard_errors() -> None:
    columns = sensitivity_columns()
    summary = Evidence.of(STUDIES["sensitivity"], SensitivityRows.of(columns)).summary
    values = np.array(columns["squared_norm"]).reshape(2, 2, 60, 4).mean(axis=3)
    assert [(item.level, item.method) for item in summary.checkpoints] == [
        (0, "jvp"), (0, "finite_difference"), (0.08, "jvp"), (0.08, "finite_difference"),
    ]  # fmt: skip
    for item, sample in zip(summary.checkpoints, values.reshape(4, 60), strict=True):
        assert (item.anchors, item.probes) == (60, 4)
        assert item.mean == pytest.approx(sample.mean())
        assert item.standard_error == pytest.approx(stats.sem(sample))


def test_the_ratio_and_its_error_are_those_of_the_jackknife() -> None:
    """The delta method and leaving out one anchor at a time agree; pairs make the error small."""
    columns = sensitivity_columns()
    summary = Evidence.of(STUDIES["sensitivity"], SensitivityRows.of(columns)).summary
    values = np.array(columns["squared_norm"]).reshape(2, 2, 60, 4).mean(axis=3)
    for index, item in enumerate(summary.ratios):
        below, above = values[0, index], values[1, index]
        assert item.ratio == pytest.approx(above.mean() / below.mean())
        left = [np.delete(above, i).mean() / np.delete(below, i).mean() for i in range(60)]
        jackknife = math.sqrt(59 / 60 * ((left - np.mean(left)) ** 2).sum())
        assert item.standard_error == pytest.approx(jackknife, rel=0.05)
        unpaired = item.ratio * math.hypot(*(stats.sem(v) / v.mean() for v in (above, below)))
        assert item.standard_error < unpaired / 2


def test_what_cannot_be_a_ratio_is_refused() -> None:
    columns = sensitivity_columns(anchors=3, probes=2)
    rows = SensitivityRows.of(columns)
    with pytest.raises(ArgumentError, match="between 1 and 2 probes"):
        Evidence.of(STUDIES["sensitivity"], rows.where(np.arange(1, len(rows))))
    anchors = rows.anchor + 5 * (rows.level > 0)
    with pytest.raises(ArgumentError, match="have other anchors"):
        Evidence.of(STUDIES["sensitivity"], SensitivityRows.of({**columns, "anchor": anchors}))
    with pytest.raises(ArgumentError, match="is 0 throughout for the reference"):
        Evidence.of(
            STUDIES["sensitivity"],
            SensitivityRows.of({**columns, "squared_norm": [0.0] * len(rows)}),
        )
    alone = Evidence.of(STUDIES["sensitivity"], rows.where((rows.anchor == 0) & (rows.level == 0)))
    assert alone.summary.ratios == ()
    assert math.isnan(alone.summary.checkpoints[0].standard_error)


# --- horizons and collapse -----------------------------------------------------------------------


def test_horizon_ratios_are_medians_over_runs() -> None:
    rows = [
        ("a", run, level, horizon, 0.9, value)
        for run, ratio in (("0", 0.1), ("1", 0.5), ("2", 0.2))
        for horizon in (8, 1)
        for level, value in ((0.0, 4.0), (0.04, 3.0), (0.08, 4.0 * ratio * horizon))
    ]
    names = [field.name for field in HorizonRows.fields()]
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    summary = Evidence.of(STUDIES["horizons"], HorizonRows.of(columns)).summary
    found = [(e.horizon, e.quantile, e.level, e.ratio, e.runs) for e in summary.entries]
    assert found == [(1, 0.9, 0.08, pytest.approx(0.2), 3), (8, 0.9, 0.08, pytest.approx(1.6), 3)]
    assert summary.largest == pytest.approx(1.6)
    held = HorizonRows.of(columns)
    lower = Evidence.of(STUDIES["horizons"], held.where(held.level < 0.08)).summary
    assert (lower.largest, lower.entries[0].level) == (0.75, 0.04)
    for kept, words in [
        (held.level == 0, "is 0 in every row"),
        ((held.run != "1") | (held.level > 0), "found 0 rows of level 0, wanted 1"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            Evidence.of(STUDIES["horizons"], held.where(kept))
    nought = HorizonRows.of(columns | {"ir_raw": np.where(held.level == 0, 0.0, 1.0)})
    with pytest.raises(ArgumentError, match="is 0 at level 0"):
        Evidence.of(STUDIES["horizons"], nought)


def test_collapse_is_judged_by_the_share_of_latent_distance() -> None:
    columns = {"checkpoint": ["fine", "flat", "half"], "median_latent_distance": [10, 0.05, 5],
               "ir_raw": [1.0, 2.0, 0.5], "sr": [0.9, 0.1, 0.95]}  # fmt: skip
    summary = Evidence.of(STUDIES["collapse"], CollapseRows.of(columns)).summary
    assert [line.collapsed for line in summary.checkpoints] == [False, True, False]
    assert (summary.lowest_ir, summary.lowest_sr) == ("half", "flat")
    assert (summary.fooled, summary.exposed) == (False, True)
    assert summary.checkpoints[0].success_clean is None
    unexposed = CollapseRows.of({**columns, "sr": [0.9, 0.9, 0.95]})
    assert Evidence.of(STUDIES["collapse"], unexposed).summary.exposed is False
    none = CollapseRows.of({**columns, "median_latent_distance": [10, 1, 5]})
    assert Evidence.of(STUDIES["collapse"], none).summary.exposed is None
    for change, words in [
        ({"median_latent_distance": [0, 0, 0]}, "is 0 in every row"),
        ({"checkpoint": ["fine", "fine", "half"]}, "row 2 repeats row 1"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            Evidence.of(STUDIES["collapse"], CollapseRows.of({**columns, **change}))


# --- shifts --------------------------------------------------------------------------------------

PAIR = {"task": ["a"], "run": ["0"], "shift": ["blur"], "ir_rel": [0.2], "sr": [0.97],
        "success_gain": [5.0]}  # fmt: skip


def pair(**changed: float) -> ShiftPair:
    rows = ShiftRows.of({**PAIR, **{name: [value] for name, value in changed.items()}})
    found: ShiftPair = Evidence.of(STUDIES["shifts"], rows).summary.pairs[0]
    return found


def test_the_reference_is_independent_of_its_sr_up_to_half() -> None:
    for t_ir in (0.05, 0.3, 0.5):
        unknown, lowest = pair(t_ir=t_ir), pair(t_ir=t_ir, sr_reference=0)
        assert unknown.reference_score == lowest.reference_score == pytest.approx((t_ir - 1) / t_ir)
    assert pair(t_ir=0.9, sr_reference=0.19).reference_score == pytest.approx((0.19 - 0.95) / 0.95)
    with pytest.raises(ArgumentError, match="sr_reference: row 1: is missing"):
        pair(t_ir=0.51)
    with pytest.raises(ArgumentError, match="t_sr: row 1: found 0"):
        pair(t_sr=0)


@pytest.mark.parametrize(
    ("changed", "better", "boundary"),
    [
        ({"success_gain": 5.0}, True, False),
        ({"success_gain": 14.3 - 9.3}, True, False),  # 5 but for rounding
        ({"success_gain": 4.99}, False, True),
        ({"success_gain": 4.0}, False, True),
        ({"success_gain": 3.99}, False, False),
        ({"success_gain": 4.5, "ir_rel": 1.2}, False, False),
        ({"success_gain": 50, "clean_gain": -5.0}, True, False),
        ({"success_gain": 50, "clean_gain": -5.1}, False, False),
        ({"success_gain": 4.5, "clean_gain": -5.1}, False, False),
    ],
)
def test_criterion_and_boundary(changed: dict[str, float], better: bool, boundary: bool) -> None:
    found = pair(**changed)
    assert (found.better, found.boundary) == (better, boundary)


def test_thresholds_come_from_the_split_that_did_not_see_the_task() -> None:
    sweep = {
        "task": ["a"] * 3 + ["b"] * 3, "run": ["0"] * 6, "level": [0, 1, 2] * 2,
        "ir_rel": [1, 0.5, 0.09, 1, 0.18, 0.18], "sr": [1.0] * 6,
        "success_noisy": [0, 10, 90, 0, 90, 90], "success_clean": [90.0] * 6,
    }  # fmt: skip
    thresholds = Evidence.of(STUDIES["thresholds"], SweepRows.of(sweep))
    rows = ShiftRows.of({name: values * 2 for name, values in PAIR.items()} | {"task": ["b", "a"]})
    found = chosen_elsewhere(rows, thresholds)
    # Chosen on a: 0.10 is the smallest that accepts level 2; on b: 0.20.
    assert found.t_ir.tolist() == [0.10, 0.20]
    assert found.t_sr.tolist() == [0.95, 0.95]
    stranger = ShiftRows.of({**PAIR, "task": ["c"]})
    with pytest.raises(ArgumentError, match="found c, where the threshold study has b, a"):
        chosen_elsewhere(stranger, thresholds)
    with pytest.raises(ArgumentError, match="this is a study of shifts"):
        chosen_elsewhere(rows, Evidence.of(STUDIES["shifts"], rows))


small = st.integers(-4, 4).map(float)


@given(st.lists(st.tuples(small, small), min_size=2, max_size=12))
def test_ranks_and_spearman_are_those_of_scipy(values: list[tuple[float, float]]) -> None:
    left, right = (np.array(side) for side in zip(*values, strict=True))
    np.testing.assert_array_equal(average_ranks(left), stats.rankdata(left))
    if len(set(left)) == 1 or len(set(right)) == 1:
        assert math.isnan(spearman(left, right))
    else:
        wanted = stats.spearmanr(left, right).statistic
        assert spearman(left, right) == pytest.approx(wanted, abs=1e-12)
