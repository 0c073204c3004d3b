"""Two scores compared, and the worst anchors of one: what is refused, what is fetched."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acpc.contract import EvidenceOptions, ScoreProtocol, to_plain
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import Operation, Result, Score, compare_scores, load_result, save_result
from acpc_client.errors import ArgumentError, FailedPrecondition
from client_counterparty import Counterparty
from client_messages import operation
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


def job(name: str, found: Score) -> Any:
    response = found.to_message()
    return operation(name, 4, state=pb.JOB_STATE_SUCCEEDED, response=response)


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
    alike = compare_scores(BEFORE, score("other", 0.6))
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
        compare_scores(BEFORE, other)
    assert caught.value.violations[0].field == "b"


def test_values_that_were_left_out_and_answers_that_are_no_score_are_refused() -> None:
    bare = replace(AFTER, checkpoint=replace(AFTER.checkpoint, anchor_values=None))
    with pytest.raises(ArgumentError, match="the server left the values per anchor out"):
        compare_scores(BEFORE, bare)
    with pytest.raises(ArgumentError, match="b: found a sweep, wanted a score"):
        compare_scores(BEFORE, Result("sweep", {}))
    values = AFTER.checkpoint.anchor_values
    moved = replace(values, partner=np.roll(values.partner, 1))
    other = replace(AFTER, checkpoint=replace(AFTER.checkpoint, anchor_values=moved))
    with pytest.raises(ArgumentError, match="their partner differ"):
        compare_scores(BEFORE, other)


def test_what_limits_a_comparison_is_in_its_notes() -> None:
    notes = " ".join(compare_scores(BEFORE, score("y", 0.3, reference=False)).notes)
    assert "one has no reference, so relative IR is not compared" in notes
    assert "trajectories are not known" in notes
    assert compare_scores(BEFORE, score("y", 0.3, reference=False)).ir_relative is None
    same = score("y", 0.3, checkpoint_digest=BEFORE.receipt.checkpoint_digest, code_version="9")
    notes = " ".join(compare_scores(BEFORE, same).notes)
    assert "the same checkpoint" in notes and "code_version differs: 0.1.0 and 9" in notes


def test_one_model_in_two_files_is_recognised() -> None:
    first, second = (
        score(name, 0.3, checkpoint_digest=name * 64, reference_digest=name * 64, **model)
        for name, model in (("a", MODEL), ("b", MODEL))
    )
    notes = compare_scores(first, second).notes
    assert "both are scores of the same model, whose files were written differently" in notes
    other = score("b", 0.3, reference_digest="b" * 64, reference_model_digest="e" * 64)
    with pytest.raises(ArgumentError, match="reference of a is aaaaaaaaaaaa, of b bbbbbbbbbbbb"):
        compare_scores(first, other)


def test_both_clients_compare_jobs_results_and_scores(
    side: Any, counterparty: Counterparty, tmp_path: Path
) -> None:
    wanted = compare_scores(BEFORE, AFTER)
    counterparty.script.extend([job("operations/a", BEFORE), job("operations/b", AFTER)])
    found = side.ask(lambda client: client.compare_scores("operations/a", "operations/b"))
    assert found == wanted
    save_result(Operation.from_message(job("operations/a", BEFORE)), tmp_path / "a.json")
    kept = load_result(tmp_path / "a.json")
    assert side.ask(lambda client: client.compare_scores(kept, AFTER)) == wanted
    assert len(counterparty.requests["GetOperation"]) == 2
    with pytest.raises(ArgumentError, match="a: found int, wanted a job's name"):
        side.ask(lambda client: client.compare_scores(7, AFTER))
    counterparty.script.append(operation("operations/c", 1))
    with pytest.raises(FailedPrecondition, match="operations/c has not ended"):
        side.ask(lambda client: client.compare_scores(kept, "operations/c"))


def test_the_worst_anchors_come_with_their_frames(side: Any, counterparty: Counterparty) -> None:
    values = BEFORE.checkpoint.anchor_values
    assert values is not None
    counterparty.script.append(job("operations/a", BEFORE))
    found = side.ask(lambda client: client.worst_anchors("operations/a", 3, draw=2))
    wanted = np.argsort(-values.radius)[:3].tolist()
    assert [one.anchor for one in found.anchors] == wanted
    assert [one.radius for one in found.anchors] == sorted(values.radius)[-3:][::-1]
    assert (found.anchors[0].clean == wanted[0]).all() and (found.anchors[0].perturbed == 2).all()
    assert found.anchors[0].anchor_id == 1000 + wanted[0] and "pushed furthest" in found.headline()
    asked = counterparty.requests["PreviewAnchors"][-1]
    assert (asked.name, list(asked.anchors), asked.draw) == ("operations/a", wanted, 2)
    kept = Result("score", BEFORE, operation="operations/a")
    found = side.ask(lambda client: client.worst_anchors(kept, by="distance"))
    apart = values.different_state_distance
    assert [one.distance for one in found.anchors] == sorted(apart[~np.isnan(apart)])[:5]
    assert found.table()["trajectory"] == [None] * 5


@pytest.mark.parametrize(
    ("answer", "more", "message"),
    [
        (Result("score", BEFORE, operation="operations/a"), {"count": 33}, "count: found 33"),
        (Result("score", BEFORE, operation="operations/a"), {"by": "R"}, "by: found 'R', wanted"),
        (BEFORE, {}, "job: names no job, whose server has the frames"),
    ],
)
def test_worst_anchors_of_nothing_are_refused(
    side: Any, answer: Any, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        side.ask(lambda client: client.worst_anchors(answer, **more))


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
