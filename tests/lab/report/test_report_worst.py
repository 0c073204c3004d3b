"""Which cells and which anchors are shown."""

from dataclasses import replace

import numpy as np
from acpc_lab.report import ReportData
from acpc_lab.report.worst import EACH, MAX_CELLS, focus, missing, worst_anchors
from report_samples import cell, preview, sweep


def test_the_worst_anchors_are_those_with_the_largest_radius_and_the_smallest_distance() -> None:
    subject = cell("tworoom", "1", 0.02, "blur:15")
    assert subject.score is not None
    values = subject.score.checkpoint.anchor_values
    assert values is not None
    found = worst_anchors(subject.score, values, 0.1)
    pairs = sorted((-radius, index) for index, radius in enumerate(values.radius))
    apart = sorted(
        (distance, index)
        for index, distance in enumerate(values.different_state_distance)
        if not np.isnan(distance)
    )
    wanted = dict.fromkeys([i for _, i in pairs[:EACH]] + [i for _, i in apart[:EACH]])
    assert [one.index for one in found] == list(wanted)
    assert found[0].reasons[0] == "pushed furthest"
    assert all(one.wanted == subject.score.checkpoint.ir_raw + 0.1 for one in found)


def test_an_anchor_without_a_partner_is_never_least_apart() -> None:
    subject = cell("tworoom", "1", 0.02, "blur:15")
    assert subject.score is not None
    values = subject.score.checkpoint.anchor_values
    assert values is not None
    lone = replace(values, different_state_distance=np.full(len(values.radius), np.nan))
    found = worst_anchors(subject.score, lone, 0.1)
    assert len(found) == EACH and all(one.distance is None for one in found)


def test_of_each_shift_the_worst_and_the_nearest_failure_are_shown_references_aside() -> None:
    data = sweep(tasks=("tworoom",), runs=("1",))
    shown = [(item.cell.shift, item.cell.level, item.why) for item in focus(data)]
    for shift in data.shifts:
        mine = [c for c in data.cells if c.shift == shift and c.score]
        failing = [c for c in mine if c.score and (c.score.verdict.score or 0) < 0]
        levels = sorted(c.level or 0 for c in failing if c.level)
        assert (shift, levels[0], "fails by the most") in shown
        if len(levels) > 1:
            assert (shift, levels[-1], "fails by the least") in shown
    assert all(level for _, level, _ in shown)


def test_what_is_asked_for_is_shown() -> None:
    data = sweep(tasks=("tworoom",), runs=("1",)).with_(focus=("tworoom-s1-a0.08",))
    assert {item.cell.name for item in focus(data)} == {"tworoom-s1-a0.08"}
    assert len(focus(data)) == 2


def test_pictures_are_wanted_until_they_are_there() -> None:
    data = sweep(tasks=("tworoom",), runs=("1",), shifts=("blur:15",))
    wanted = missing(data)
    assert {len(indices) for indices in wanted.values()} <= set(range(EACH, 2 * EACH + 1))
    there = {(name, index): preview() for name, indices in wanted.items() for index in indices}
    assert missing(data.with_(previews=there)) == {}
    assert missing(sweep_without_jobs()) == {}


def sweep_without_jobs() -> ReportData:
    data = sweep(tasks=("tworoom",), runs=("1",), shifts=("blur:15",))
    return data.with_(cells=tuple(replace(item, operation="") for item in data.cells))


def test_with_many_shifts_each_has_its_worst_before_any_has_a_second() -> None:
    shifts = ("gaussian_noise:0.08", "blur:15", "resize:0.25", "fog:1")
    found = focus(sweep(tasks=("tworoom",), runs=("1",), shifts=shifts))
    assert len(found) == MAX_CELLS
    assert list(dict.fromkeys(item.cell.shift for item in found)) == list(shifts)
    worst = [item.cell.shift for item in found if item.why == "fails by the most"]
    assert worst == list(shifts)


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
        assert {again for item in mine for again in item.again} <= set(shown)
