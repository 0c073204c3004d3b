"""Geometry, sensitivity, horizons, collapse, shifts and success rates against loops and SciPy."""

import math

import numpy as np
import pytest
from acpc_client.errors import ArgumentError
from acpc_lab.studies import STUDIES, ShiftRows, chosen_elsewhere, gain_interval, success_interval
from acpc_lab.studies.geometry import envelope, measure
from acpc_lab.studies.shifts import ShiftPair
from acpc_lab.studies.statistics import spearman
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from study_examples import (
    COLLAPSE,
    PAIR,
    SWEEP,
    clouds,
    evidence,
    geometry_columns,
    horizon_columns,
    sensitivity_columns,
    summary,
    where,
)


@pytest.mark.parametrize("spread", [0.02, 0.2, 2.0])
def test_geometry_is_that_of_brute_force(spread: float) -> None:
    clean, views = clouds(0, spread, 30)
    found = measure(clean, views)
    radius = [
        max(math.dist(view, own) for view in seen) for own, seen in zip(clean, views, strict=True)
    ]
    for i, own in enumerate(clean):
        others = {j: math.dist(own, clean[j]) for j in range(30) if j != i}
        assert found.radius[i] == pytest.approx(radius[i], rel=1e-12)
        assert found.nearest[i] == pytest.approx(min(others.values()), rel=1e-12)
        assert found.disjoint[i] == all(d > radius[i] + radius[j] for j, d in others.items())


def test_geometry_summaries_are_medians_and_shares_of_the_anchors() -> None:
    columns, arrays = geometry_columns(clouds(1, 0.5), clouds(1, 0.05))
    found = summary("geometry", columns)
    assert found == summary("geometry", columns, arrays)
    for item in found.spaces:
        one = measure(*clouds(1, 0.5 if item.level == 0 else 0.05))
        ratios = sorted(one.radius / one.nearest)
        assert item.median_ratio == pytest.approx((ratios[63] + ratios[64]) / 2)
        assert item.below_nearest == sum(ratio < 1 for ratio in ratios) / 128
        assert item.disjoint * 128 == one.disjoint.sum()
    loose, _, tight, _ = found.spaces
    assert tight.median_ratio < loose.median_ratio and tight.disjoint > loose.disjoint


def test_the_envelope_encloses_its_share_of_a_gaussian() -> None:
    random = np.random.default_rng(4)
    points = random.normal(size=(40_000, 2)) @ np.array([[2.0, 1.5], [0.0, 0.4]]) + [3, -1]
    centre, width, height, angle = envelope(points, 0.90)
    turn = math.radians(angle)
    along = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    inside = ((points - centre) @ along.T / (np.array([width, height]) / 2)) ** 2
    assert (inside.sum(axis=1) <= 1).mean() == pytest.approx(0.90, abs=0.01)


def test_sensitivities_and_their_ratios_have_the_errors_of_paired_samples() -> None:
    """The delta method and leaving out one anchor at a time agree; pairs make the error small."""
    columns = sensitivity_columns()
    found = summary("sensitivity", columns)
    values = columns["squared_norm"].reshape(2, 2, 60, 4).mean(axis=3)
    assert [(item.level, item.method) for item in found.checkpoints] == [
        (0, "jvp"), (0, "finite_difference"), (0.08, "jvp"), (0.08, "finite_difference"),
    ]  # fmt: skip
    for item, sample in zip(found.checkpoints, values.reshape(4, 60), strict=True):
        assert (item.anchors, item.probes) == (60, 4)
        assert item.mean == pytest.approx(sample.mean())
        assert item.standard_error == pytest.approx(stats.sem(sample))
    for index, item in enumerate(found.ratios):
        below, above = values[0, index], values[1, index]
        assert item.ratio == pytest.approx(above.mean() / below.mean())
        left = [np.delete(above, i).mean() / np.delete(below, i).mean() for i in range(60)]
        jackknife = math.sqrt(59 / 60 * ((left - np.mean(left)) ** 2).sum())
        assert item.standard_error == pytest.approx(jackknife, rel=0.05)
        unpaired = item.ratio * math.hypot(*(stats.sem(v) / v.mean() for v in (above, below)))
        assert item.standard_error < unpaired / 2
    one = where(columns, (columns["anchor"] == 0) & (columns["level"] == 0))
    alone = summary("sensitivity", one)
    assert alone.ratios == () and math.isnan(alone.checkpoints[0].standard_error)


def test_horizon_ratios_are_medians_over_runs() -> None:
    columns = horizon_columns()
    found = summary("horizons", columns)
    entries = [(e.horizon, e.quantile, e.level, e.ratio, e.runs) for e in found.entries]
    assert entries == [(1, 0.9, 0.08, pytest.approx(0.2), 3), (8, 0.9, 0.08, pytest.approx(1.6), 3)]
    assert found.largest == pytest.approx(1.6)
    lower = summary("horizons", where(columns, columns["level"] < 0.08))
    assert (lower.largest, lower.entries[0].level) == (0.75, 0.04)


def test_collapse_is_judged_by_the_share_of_latent_distance() -> None:
    found = summary("collapse", COLLAPSE)
    assert [line.collapsed for line in found.checkpoints] == [False, True, False]
    assert (found.lowest_ir, found.lowest_sr) == ("half", "flat")
    assert (found.fooled, found.exposed) == (False, True)
    assert found.checkpoints[0].success_clean is None
    assert summary("collapse", COLLAPSE | {"sr": [0.9, 0.9, 0.95]}).exposed is False
    none = COLLAPSE | {"median_latent_distance": [10, 1, 5]}
    assert summary("collapse", none).exposed is None


def pair(**changed: float) -> ShiftPair:
    found: ShiftPair = summary("shifts", PAIR | {k: [v] for k, v in changed.items()}).pairs[0]
    return found


def test_the_reference_is_independent_of_its_sr_up_to_half() -> None:
    for t_ir in (0.05, 0.3, 0.5):
        unknown, lowest = pair(t_ir=t_ir), pair(t_ir=t_ir, sr_reference=0)
        assert unknown.reference_score == lowest.reference_score == pytest.approx((t_ir - 1) / t_ir)
    assert pair(t_ir=0.9, sr_reference=0.19).reference_score == pytest.approx((0.19 - 0.95) / 0.95)


@pytest.mark.parametrize(
    ("changed", "better", "boundary"),
    [
        ({"success_gain": 5.0}, True, False),
        ({"success_gain": 8.2 - 3.2}, True, False),  # 5 but for rounding
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
    thresholds = evidence("thresholds", SWEEP)
    rows = ShiftRows.of({name: values * 2 for name, values in PAIR.items()} | {"task": ["b", "a"]})
    found = chosen_elsewhere(rows, thresholds)
    # Chosen on a: 0.10 is the smallest that accepts level 2; on b: 0.20.
    assert (found.t_ir.tolist(), found.t_sr.tolist()) == ([0.10, 0.20], [0.95, 0.95])
    with pytest.raises(ArgumentError, match="found c, where the threshold study has b, a"):
        chosen_elsewhere(ShiftRows.of({**PAIR, "task": ["c"]}), thresholds)
    with pytest.raises(ArgumentError, match="this is a study of shifts"):
        chosen_elsewhere(rows, evidence("shifts", PAIR))


small = st.integers(-4, 4).map(float)


@given(st.lists(st.tuples(small, small), min_size=2, max_size=12))
def test_spearman_is_that_of_scipy(values: list[tuple[float, float]]) -> None:
    left, right = (np.array(side) for side in zip(*values, strict=True))
    if len(set(left)) == 1 or len(set(right)) == 1:
        assert math.isnan(spearman(left, right))
    else:
        wanted = stats.spearmanr(left, right).statistic
        assert spearman(left, right) == pytest.approx(wanted, abs=1e-12)


@given(st.integers(1, 300), st.data())
def test_a_success_interval_is_wilsons(episodes: int, data: st.DataObject) -> None:
    """The two rates whose score test is at its edge: (p - q)^2 = z^2 q (1 - q) / n."""
    share, z = data.draw(st.integers(0, episodes)) / episodes, 1.959963984540054
    low, high = success_interval(100 * share, episodes) or (math.nan, math.nan)
    for q in (low / 100, high / 100):
        assert (share - q) ** 2 == pytest.approx(z**2 * q * (1 - q) / episodes, abs=1e-9)
    assert -1e-9 <= low <= 100 * share + 1e-9 and 100 * share - 1e-9 <= high <= 100 + 1e-9


@pytest.mark.parametrize(
    ("rates", "ends"), [((90.0, 30.0), (17.05, 80.90)), ((100.0, 0.0), (60.75, 100.0))]
)
def test_a_gain_interval_is_newcombes(
    rates: tuple[float, float], ends: tuple[float, float]
) -> None:
    """Of ten episodes each: the examples of Newcombe (1998), method 10."""
    assert gain_interval(*rates, 10) == pytest.approx(ends, abs=0.005)
    assert gain_interval(*rates, math.nan) is success_interval(50.0, math.nan) is None
    assert success_interval(33.3, 300) == success_interval(100 * 100 / 300, 300)


def test_every_study_is_listed_under_its_own_name() -> None:
    assert [study.name for study in STUDIES.values()] == list(STUDIES)
