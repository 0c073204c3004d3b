"""What the report recomputes, and that it notices numbers that do not belong together."""

from dataclasses import replace

import numpy as np
import pytest
from acpc_lab.report import ProtocolUsed, ReportData
from acpc_lab.report.measures import checks, recompute
from acpc_lab.report.model import Measurement
from report_samples import MARGIN, QUANTILE, cell, sweep


def by_hand(subject: Measurement) -> tuple[float, float]:
    """IR and SR from the paper's text, in loops."""
    assert subject.score is not None
    values = subject.score.checkpoint.anchor_values
    assert values is not None
    radii = []
    for draws in values.draw_radius:
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
    for distance in values.different_state_distance:
        if not np.isnan(distance):
            tested += 1
            apart += distance > ir_raw + MARGIN
    return ir_raw, apart / tested


@pytest.mark.parametrize("level", [0, 0.02, 0.08])
def test_ir_and_sr_are_those_of_the_paper(level: float) -> None:
    subject = cell("tworoom", "1", level, "blur:15")
    result = recompute(subject)
    assert result is not None and result.agrees
    assert (result.ir_raw, result.sr) == pytest.approx(by_hand(subject), rel=1e-12)


def altered(data: ReportData, field: str, value: float) -> ReportData:
    first = data.cells[0]
    assert first.score is not None
    side = replace(first.score.checkpoint, **{field: value})
    return data.with_(
        cells=(replace(first, score=replace(first.score, checkpoint=side)), *data.cells[1:])
    )


SMALL = {"tasks": ("tworoom",), "runs": ("1", "2"), "levels": (0, 0.04), "shifts": ("blur:15",)}


def test_all_is_well_with_one_protocol() -> None:
    found = checks(sweep(**SMALL))
    assert [check.good for check in found] == [True] * 5


@pytest.mark.parametrize(("field", "value"), [("ir_raw", 1.0), ("sr", 0.5), ("sr", float("nan"))])
def test_a_number_that_its_anchors_do_not_give_is_noticed(field: str, value: float) -> None:
    recomputed = checks(altered(sweep(**SMALL), field, value))[0]
    assert recomputed.good is False
    assert "3 of 4 agree" in recomputed.text and "tworoom-s1-a0 under blur:15" in recomputed.text


@pytest.mark.parametrize(
    ("field", "place"),
    [("anchors_digest", 1), ("perturbation_digest", 3), ("device", 4), ("code_version", 4)],
)
def test_receipts_that_differ_are_noticed(field: str, place: int) -> None:
    data = sweep(**SMALL)
    first = data.cells[0]
    assert first.score is not None
    receipt = replace(first.score.receipt, **{field: "other"})
    mixed = (replace(first, score=replace(first.score, receipt=receipt)), *data.cells[1:])
    found = checks(data.with_(cells=mixed))
    assert [index for index, check in enumerate(found) if not check.good] == [place]


def test_a_different_count_of_eligible_anchors_is_noticed() -> None:
    found = checks(altered(sweep(**SMALL), "eligible", 12))
    assert found[2].good is False


def test_a_protocol_that_is_not_known_is_said_to_be_assumed() -> None:
    data = sweep(**SMALL)
    unknown = tuple(replace(item, protocol=ProtocolUsed()) for item in data.cells)
    recomputed = checks(data.with_(cells=unknown))[0]
    assert recomputed.good is True and "which the source does not tell" in recomputed.text
    other = tuple(replace(item, protocol=ProtocolUsed(quantile=0.5)) for item in data.cells)
    assert checks(data.with_(cells=other))[0].good is False


@pytest.mark.parametrize(("floors", "good"), [(10.1, True), (9.9, False)])
def test_a_raw_ir_near_its_rounding_floor_is_noticed(floors: float, good: bool) -> None:
    data = sweep(**SMALL)
    score = data.cells[0].score
    assert score is not None
    near = altered(data, "rounding_floor", score.checkpoint.ir_raw / floors)
    (found,) = [check for check in checks(near) if "rounding floors" in check.text]
    assert found.good is good
    assert good or f"raw IR {score.checkpoint.ir_raw:.3g} of tworoom-s1-a0 is" in found.text


def test_without_anchor_values_nothing_is_claimed() -> None:
    data = sweep(**SMALL)
    bare = altered(data.with_(cells=data.cells[:1]), "anchor_values", None)  # type: ignore[arg-type]
    assert checks(bare)[0].good is None
