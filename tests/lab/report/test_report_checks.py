"""What the report recomputes, which numbers it finds do not belong together, and what it shows."""

from dataclasses import replace

import numpy as np
import pytest
from acpc_lab.report import ReportData
from acpc_lab.report.receipts import checks
from acpc_lab.report.receipts import wanted as margin_of
from acpc_lab.report.worst import EACH, focus, worst_anchors
from report_samples import cell, changed, sweep

SMALL = sweep(("tworoom",), ("1", "2"), (0, 0.04), ("blur:15",))


def altered(part: str, **changes: object) -> ReportData:
    """The data with other values in a part of the first cell's score."""
    score = SMALL.cells[0].score
    assert score is not None
    new = replace(getattr(score, part), **changes)
    return changed(SMALL, 0, score=replace(score, **{part: new}))


@pytest.mark.parametrize(("field", "value"), [("ir_raw", 1.0), ("sr", 0.5), ("sr", float("nan"))])
def test_a_number_that_its_anchors_do_not_give_is_noticed(field: str, value: float) -> None:
    recomputed = checks(altered("checkpoint", **{field: value}))[0]
    assert recomputed.good is False
    assert "3 of 4 agree" in recomputed.text and "tworoom-s1-a0 under blur:15" in recomputed.text


@pytest.mark.parametrize(
    ("part", "field", "value", "place"),
    [
        ("receipt", "anchors_digest", "other", 1),
        ("checkpoint", "eligible", 12, 2),
        ("receipt", "perturbation_digest", "other", 3),
        ("receipt", "device", "other", 4),
        ("receipt", "code_version", "other", 4),
    ],
)
def test_scores_that_do_not_compare_are_noticed(
    part: str, field: str, value: object, place: int
) -> None:
    found = checks(altered(part, **{field: value}))
    assert [index for index, check in enumerate(found) if not check.good] == [place]


SUBJECT = cell("tworoom", "1", 0.02, "blur:15")


@pytest.mark.parametrize("partners", [True, False])
def test_the_worst_anchors_have_the_largest_radius_and_the_smallest_distance(
    partners: bool,
) -> None:
    """An anchor without a partner is never least apart."""
    values = SUBJECT.values
    assert values is not None
    if not partners:
        values = replace(values, different_state_distance=np.full(len(values.radius), np.nan))
    found = worst_anchors(values)
    distances = enumerate(values.different_state_distance)
    pairs = sorted((-radius, index) for index, radius in enumerate(values.radius))
    apart = sorted((distance, index) for index, distance in distances if not np.isnan(distance))
    assert len(apart) == (80 if partners else 0)
    wanted = dict.fromkeys([i for _, i in pairs[:EACH]] + [i for _, i in apart[:EACH]])
    assert [one.index for one in found] == list(wanted)
    assert found[0].reasons[0] == "pushed furthest"
    assert margin_of(SUBJECT) == SUBJECT.value("ir_raw") + 0.1


def test_of_each_shift_the_worst_and_the_nearest_failure_are_shown_references_aside() -> None:
    data = sweep(tasks=("tworoom",), runs=("1",))
    shown = [(item.cell.shift, item.cell.level, item.why) for item in focus(data)]
    for shift in data.shifts:
        failing = [c for c in data.cells if c.shift == shift and (c.value("score") or 0) < 0]
        levels = sorted(c.level or 0 for c in failing if c.level)
        assert (shift, levels[0], "fails by the most") in shown
        if len(levels) > 1:
            assert (shift, levels[-1], "fails by the least") in shown
    assert all(level for _, level, _ in shown)
    asked = focus(data.with_(focus=("tworoom-s1-a0.08",)))
    assert [item.cell.name for item in asked] == ["tworoom-s1-a0.08"] * 2


def test_an_anchor_is_shown_once_among_the_levels_of_a_shift() -> None:
    """What is worst at one level mostly is at the next; other kinds are other pictures."""
    shifts = ("gaussian_noise:0.02", "gaussian_noise:0.05", "gaussian_noise:0.08", "blur:15")
    found = focus(sweep(tasks=("tworoom",), runs=("1",), shifts=shifts))
    kinds = [item.cell.shift.partition(":")[0] for item in found]
    assert kinds == ["gaussian_noise"] * 2 + ["blur"] * 2
    for kind in set(kinds):
        mine = [item for item, its in zip(found, kinds, strict=True) if its == kind]
        shown = [anchor.identity for item in mine for anchor in item.anchors]
        assert len(shown) == len(set(shown))
        for item in mine:
            assert item.cell.values is not None
            worst = {anchor.identity for anchor in worst_anchors(item.cell.values)}
            assert {anchor.identity for anchor in item.anchors} <= worst <= set(shown)
