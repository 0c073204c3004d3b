"""Two scores compared: the differences, what is refused, what is noted."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from acpc.contract import EvidenceOptions, ScoreProtocol, to_plain
from acpc_client import Score
from acpc_client.errors import ArgumentError
from acpc_lab.evidence import compare_scores
from report_samples import judged
from report_samples import side as side_score

FEW = EvidenceOptions(resamples=400)
PROTOCOL = {"protocol": to_plain(ScoreProtocol())}


def score(
    name: str, push: float, *, seed: int = 0, reference: bool = True, **receipt: Any
) -> Score:
    """Of one set of 100 anchors, whose receipt may differ."""
    against = side_score("two-base", 2.0, 2.0) if reference else None
    made = judged(side_score(f"two-{name}", push, 2.0, seed=seed), against, shift="noise")
    return replace(made, receipt=replace(made.receipt, **{"parameters": PROTOCOL, **receipt}))


BEFORE, AFTER = score("before", 0.6), score("after", 0.3, seed=1)


def test_a_difference_has_both_numbers_its_interval_and_a_direction() -> None:
    found = compare_scores(BEFORE, AFTER, FEW)
    assert (found.first, found.second, found.anchors) == ("two-before", "two-after", 100)
    assert found.ir_relative is not None and found.sr is not None
    assert found.ir_relative.first == BEFORE.verdict.ir_relative
    assert found.ir_relative.change == pytest.approx(
        AFTER.verdict.ir_relative - BEFORE.verdict.ir_relative
    )
    assert found.ir_raw.change == AFTER.checkpoint.ir_raw - BEFORE.checkpoint.ir_raw
    assert found.sr.change == pytest.approx(AFTER.checkpoint.sr - BEFORE.checkpoint.sr)
    assert [found.ir_raw.direction, found.ir_ratio.direction] == ["lower", "lower"]
    assert found.sr.direction == "higher"
    held = "two-after against two-before on 100 anchors, at 95 % of new trajectories like these"
    held += ": IR is lower, SR is higher"
    assert found.headline() == held
    alike = compare_scores(BEFORE, score("other", 0.6), FEW)
    assert "neither IR nor SR differs for sure" in alike.headline()
    back = compare_scores(AFTER, BEFORE, FEW)
    assert back.ir_raw.direction == back.ir_ratio.direction == "higher"
    assert "<td>higher</td>" in back._repr_html_()
    assert list(found.table()["number"]) == ["relative IR", "SR", "raw IR", "raw IR, ratio"]


MODEL = {"model_digest": "d" * 64, "reference_model_digest": "f" * 64}
OTHER = {"protocol": {**PROTOCOL["protocol"], "horizon": 4, "draws": 9}}


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (score("x", 0.3, anchors_digest="b" * 64), "anchors of a is .*, of b bbbbbbbbbbbb"),
        (score("x", 0.3, perturbation_digest="e" * 64), "shift of a is .*, of b eeeeeeeeeeee"),
        (score("x", 0.3, reference_digest="f" * 64), "reference of a is .*, of b ffffffffffff"),
        (score("x", 0.3, parameters=OTHER), "draws of a is 5, of b 9; horizon of a is 8, of b 4"),
        (score("x", 0.3, parameters={}), "release whose receipt does not name the protocol"),
    ],
    ids=["anchors", "shift", "reference", "protocol", "older"],
)
def test_what_cannot_be_compared_is_refused_with_every_reason(other: Score, reason: str) -> None:
    with pytest.raises(ArgumentError, match=reason) as caught:
        compare_scores(BEFORE, other, FEW)
    assert caught.value.violations[0].field == "b"


def test_values_that_were_left_out_or_differ_are_refused() -> None:
    bare = replace(AFTER, checkpoint=replace(AFTER.checkpoint, anchor_values=None))
    with pytest.raises(ArgumentError, match="the server left the values per anchor out"):
        compare_scores(BEFORE, bare, FEW)
    values = AFTER.checkpoint.anchor_values
    moved = replace(values, partner=np.roll(values.partner, 1))
    other = replace(AFTER, checkpoint=replace(AFTER.checkpoint, anchor_values=moved))
    with pytest.raises(ArgumentError, match="their partner differ"):
        compare_scores(BEFORE, other, FEW)


def test_what_limits_a_comparison_is_in_its_notes() -> None:
    found = compare_scores(BEFORE, score("y", 0.3, reference=False), FEW)
    notes = " ".join(found.notes)
    assert "one has no reference, so relative IR is not compared" in notes
    assert "trajectories are not known" in notes
    assert found.ir_relative is None
    same = score("y", 0.3, checkpoint_digest=BEFORE.receipt.checkpoint_digest, code_version="9")
    notes = " ".join(compare_scores(BEFORE, same, FEW).notes)
    assert "the same checkpoint" in notes and "code_version differs: 0.1.0 and 9" in notes


def test_one_model_in_two_files_is_recognised() -> None:
    first, second = (
        score(name, 0.3, checkpoint_digest=name * 64, reference_digest=name * 64, **model)
        for name, model in (("a", MODEL), ("b", MODEL))
    )
    notes = compare_scores(first, second, FEW).notes
    assert "both are scores of the same model, whose files were written differently" in notes
    other = score("b", 0.3, reference_digest="b" * 64, reference_model_digest="e" * 64)
    with pytest.raises(ArgumentError, match="reference of a is aaaaaaaaaaaa, of b bbbbbbbbbbbb"):
        compare_scores(first, other, FEW)


def test_too_few_trajectories_leave_the_differences_open_and_say_so() -> None:
    ids = np.arange(100) // 4
    apart = [
        replace(
            found,
            checkpoint=replace(
                found.checkpoint,
                anchor_values=replace(found.checkpoint.anchor_values, trajectory_ids=ids),
            ),
        )
        for found in (BEFORE, AFTER)
    ]
    found = compare_scores(*apart, FEW)
    assert "neither IR nor SR differs for sure" in found.headline()
    assert found.notes[-1].startswith("25 trajectories are too few for intervals: ")
