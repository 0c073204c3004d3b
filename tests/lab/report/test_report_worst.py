"""Which cells and which anchors are shown."""

from dataclasses import replace

import numpy as np
import pytest
from acpc_lab.report.receipts import wanted as margin_of
from acpc_lab.report.worst import EACH, focus, worst_anchors
from report_samples import cell, sweep

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
