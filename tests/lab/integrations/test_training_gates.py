"""What the callback's gate makes of the last scored epoch, at the end of training."""

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from acpc.contract import CheckpointRef, DatasetAnchors, GaussianBlur, GaussianNoise
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import Score
from acpc_client.errors import ArgumentError, NotFound
from acpc_lab.integrations import EpochScore, ScoreCheckpointCallback, ScreenFailed
from client_messages import score_response, sure

pytestmark = pytest.mark.process  # it loads Lightning

NOISE = GaussianNoise(0.08)
ANCHORS = DatasetAnchors("rooms.h5", "tworoom")
TRAINER = SimpleNamespace(
    is_global_zero=True, strategy=SimpleNamespace(reduce_boolean_decision=lambda flag, all: flag)
)
PASSED, FAILED, UNDECIDED = pb.OUTCOME_PASSED, pb.OUTCOME_FAILED, pb.OUTCOME_UNDECIDED


def scored(epoch: int, outcome: int, confident: int | None, shift: Any = NOISE) -> EpochScore:
    doubt = {"doubt": pb.DOUBT_SR, "anchors_to_decide": 240}
    found = None if confident is None else sure(confident, **doubt)
    message = score_response(outcome, sr_passed=outcome == PASSED, evidence=found)
    score = Score.from_message(message)
    return EpochScore(epoch, 0, CheckpointRef("a"), shift, "operations/a", score, None)


def ended(scores: list[EpochScore], **options: Any) -> list[str]:
    """The warnings at the end of training; raises what the gate does."""
    callback = ScoreCheckpointCallback(
        "localhost:1", ANCHORS, NOISE, export=lambda *_: None, **options
    )
    callback.scores = scores
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        callback.on_train_end(TRAINER, None)
    return [str(item.message) for item in caught]


@pytest.mark.parametrize(
    ("outcome", "confident", "gate", "fails"),
    [
        (FAILED, UNDECIDED, True, True),
        (FAILED, UNDECIDED, "point", True),
        (FAILED, UNDECIDED, "confident", False),
        (PASSED, FAILED, "point", False),
        (PASSED, FAILED, "confident", True),
        (PASSED, PASSED, "confident", False),
        (FAILED, FAILED, False, False),
        (PASSED, None, "point", False),
        (PASSED, None, "confident", True),
    ],
)
def test_the_gate_goes_by_the_verdict_that_it_names(
    outcome: int, confident: int | None, gate: bool | str, fails: bool
) -> None:
    scores = [scored(0, FAILED, FAILED), scored(1, outcome, confident)]
    if not fails:
        ended(scores, gate=gate)
        return
    with pytest.raises(ScreenFailed, match="epoch 1"):
        ended(scores, gate=gate)


def test_undecided_is_a_warning_that_says_what_would_decide_it_or_a_failure_by_choice() -> None:
    scores = [scored(3, PASSED, PASSED), scored(3, FAILED, UNDECIDED, GaussianBlur(15))]
    (told,) = ended(scores, gate="confident")
    words = "epoch 3 under gaussian_blur:15: undecided: 2 anchors are too few, about 240 would"
    assert words in told and "training is not stopped for it" in told
    with pytest.raises(ScreenFailed, match=words):
        ended(scores, gate="confident", undecided="fail")
    surely = [*scores, scored(3, FAILED, FAILED, GaussianNoise(0.2))]
    with pytest.raises(ScreenFailed, match="epoch 3 does not pass"):
        ended(surely, gate="confident")


def test_a_shift_without_a_score_does_not_pass_and_an_old_server_is_named() -> None:
    failed = EpochScore(
        0, 0, CheckpointRef("a"), GaussianBlur(5), "", None, NotFound("it is not there")
    )
    with pytest.raises(ScreenFailed, match="epoch 0 does not pass"):
        ended([scored(0, PASSED, PASSED), failed], gate="confident")
    with pytest.raises(ScreenFailed, match="epoch 0: this score has no evidence of how sure it is"):
        ended([scored(0, PASSED, None)], gate="confident")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gate": "sure"}, "gate: found 'sure', wanted point or confident"),
        ({"undecided": "stop"}, "undecided: found 'stop', wanted continue or fail"),
    ],
)
def test_a_choice_that_there_is_not_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        ended([], **options)
