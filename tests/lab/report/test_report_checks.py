"""What the report recomputes, and that it notices numbers that do not belong together."""

from dataclasses import replace

import numpy as np
import pytest
from acpc_lab.report import ReportData
from acpc_lab.report.receipts import agrees, checks
from report_samples import MARGIN, QUANTILE, cell, changed, sweep


@pytest.mark.parametrize("level", [0, 0.02, 0.08])
def test_ir_and_sr_are_those_of_the_paper(level: float) -> None:
    """Computed here from the paper's text, in loops."""
    subject = cell("tworoom", "1", level, "blur:15")
    assert subject.values is not None
    radii = []
    for draws in subject.values.draw_radius:
        total = 0.0
        for draw in draws:
            total += float(draw)
        radii.append(total / len(draws))
    radii.sort()
    place = QUANTILE * (len(radii) - 1)
    below = int(place)
    above = min(below + 1, len(radii) - 1)
    ir_raw = radii[below] + (place - below) * (radii[above] - radii[below])
    tested = apart = 0
    for distance in subject.values.different_state_distance:
        if not np.isnan(distance):
            tested += 1
            apart += distance > ir_raw + MARGIN
    assert agrees(subject)
    found = subject.value("ir_raw"), subject.value("sr")
    assert found == pytest.approx((ir_raw, apart / tested), rel=1e-12)


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
