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


def test_of_each_kind_of_shift_the_smallest_s_is_shown_references_aside() -> None:
    shifts = ("gaussian_noise:0.02", "gaussian_noise:0.05", "gaussian_noise:0.08", "blur:15")
    data = sweep(tasks=("tworoom",), runs=("1",), shifts=shifts)
    found = focus(data)
    assert sorted(item.cell.shift.partition(":")[0] for item in found) == ["blur", "gaussian_noise"]
    for item in found:
        kind = item.cell.shift.partition(":")[0]
        mine = [x for x in data.cells if x.shift.startswith(kind) and not x.is_reference]
        assert item.cell.value("score") == min(x.value("score") for x in mine)
        assert item.cell.values is not None
        assert item.anchors == worst_anchors(item.cell.values)
    alone = sweep(tasks=("tworoom",), runs=("1",), levels=(0,), shifts=("blur:15",))
    assert [item.cell.is_reference for item in focus(alone)] == [True]
