"""Stored scores: ``acpc judge`` under other thresholds, and ``acpc diff`` of two."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from acpc.contract import ScoreProtocol, to_plain
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import (
    Doubt,
    Evidence,
    Look,
    LookStop,
    Operation,
    Outcome,
    Score,
    SequentialLooks,
    Thresholds,
    judge_again,
    save_result,
)
from acpc_command import Acpc
from client_messages import operation
from report_samples import judged, saved, side

REFERENCE = side("two-base", 2.0, 2.0)
PASSED, FAILED, OPEN = Outcome.PASSED, Outcome.FAILED, Outcome.UNDECIDED


def score(push: float = 0.3, *, sure: bool = True) -> Score:
    return judged(side("two-noise", push, 4.0), REFERENCE, sure=sure)


def weighed(made: Score, t_ir: float, t_sr: float) -> Evidence:
    found = judge_again(made, Thresholds(t_ir, t_sr)).evidence
    assert found is not None
    return found


def test_no_server_is_asked(acpc: Acpc) -> None:
    for name, push in (("good", 0.3), ("bad", 1.9)):
        save_result(score(push), Path(f"{name}.json"))
    good, bad = Path("good.json"), Path("bad.npz")
    save_result(score(1.9), bad)
    assert acpc("judge", good).stdout.startswith("PASSED: the screen's sentence")
    told = acpc("judge", good, "--t-ir", 0.05, code=3).stdout
    assert told.startswith("FAILED on relative IR") and "at most 0.05" in told
    told = acpc("judge", good, bad, "--t-ir", 2, "--t-sr", 0.5, "--junit", Path("gate.xml")).stdout
    assert [x.split()[0] for x in told.splitlines() if " PASSED " in x] == [str(good), str(bad)]
    assert Path("gate.xml").read_text().count("<testcase") == 2
    several = json.loads(acpc("judge", good, bad, "-o", "json", code=3).stdout)
    assert [one["answer"]["verdict"]["outcome"] for one in several] == ["passed", "failed"]
    assert not acpc.server.requests


def test_values_per_anchor_are_not_needed(acpc: Acpc) -> None:
    made = score()
    bare = replace(made, checkpoint=replace(made.checkpoint, anchor_values=None))
    for name, of in (("whole", made), ("bare", bare)):
        save_result(of, Path(f"{name}.json"))
    asked = ("--t-ir", 0.1, "--t-sr", 0.9, "--gate", "confident", "-o", "json")
    told = [json.loads(acpc("judge", Path(f"{x}.json"), *asked, code=None).stdout)
            for x in ("whole", "bare")]  # fmt: skip
    assert told[0]["answer"]["evidence"] == told[1]["answer"]["evidence"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--t-sr", 1.5], "thresholds.sr: found 1.5"),
        (["--t-ir", 0], ": thresholds.ir: found 0"),
        (["--gate", "confident"], "old.json: this score has no evidence of how sure it is"),
    ],
)
def test_what_cannot_be_judged_is_said(acpc: Acpc, options: list[object], words: str) -> None:
    save_result(score(sure=False), Path("old.json"))
    assert words in acpc("judge", Path("old.json"), *options, code=2).stderr


def test_among_several_a_reference_does_not_count(acpc: Acpc) -> None:
    own = judged(REFERENCE, REFERENCE)
    alike = replace(own.receipt, reference_digest=own.receipt.checkpoint_digest)
    save_result(replace(own, receipt=alike), base := Path("base.npz"))
    save_result(score(), good := Path("good.npz"))
    acpc("judge", base, code=3)
    told = acpc("judge", base, good, "--junit", Path("gate.xml")).stdout.splitlines()
    first, second = (next(x for x in told if x.startswith(f"{file} ")) for file in (base, good))
    assert "reference" in first and "PASSED" in second
    assert "there for comparison" in Path("gate.xml").read_text()


def test_the_numbers_of_a_late_epoch_are_sound(acpc: Acpc) -> None:
    """Their confidence needs more than the default's resamples, which a watch asks for."""
    made = score()
    assert made.evidence is not None
    late = replace(made.evidence, confidence=0.9996, resamples=10_000)
    save_result(replace(made, evidence=late), epoch := Path("epoch.npz"))
    acpc("judge", epoch)
    saved(epoch, replace(made, evidence=late))
    acpc("report", epoch, "--out", Path("page.html"), "--no-pictures")
    save_result(replace(made, evidence=replace(late, confidence=1.5)), epoch)
    wrong = acpc("judge", epoch, code=2).stderr
    assert "answer.evidence.confidence: found 1.5, wanted a number in (0.5, 1)" in wrong


def test_the_intervals_decide_at_every_threshold() -> None:
    made = score()
    assert made.evidence is not None and made.evidence.ir_relative is not None
    ir, sr = made.evidence.ir_relative, made.evidence.sr
    low = sr.lower / 2
    assert weighed(made, ir.upper, low).confident_outcome is PASSED
    assert weighed(made, ir.upper * 0.999, low).doubt is Doubt.IR
    assert weighed(made, ir.lower, low).confident_outcome is OPEN
    assert weighed(made, ir.lower * 0.999, low).confident_outcome is FAILED
    assert weighed(made, ir.upper, sr.lower).confident_outcome is PASSED
    both = weighed(made, ir.upper * 0.999, min(1.0, sr.lower * 1.001))
    assert both.doubt is Doubt.BOTH and both.anchors_to_decide is None
    sure = weighed(made, ir.upper, low)
    assert (sure.p_passed, sure.p_failed) == (pytest.approx(0.05), 1)
    assert sure.score is not None and sure.score.lower >= 0


def test_draws_that_anchors_share_decide_nothing() -> None:
    made = score()
    assert made.evidence is not None
    shared = replace(made, evidence=replace(made.evidence, doubt=Doubt.DRAWS))
    found = weighed(shared, 1000.0, 1e-6)
    assert (found.confident_outcome, found.doubt) == (OPEN, Doubt.DRAWS)


def test_looks_that_were_taken_for_other_thresholds_are_a_little_less_sure() -> None:
    """Whichever look had been the last, and for whichever error: the larger of both counts."""
    made = score()
    looks = (Look(50, 40, 0.00625, 0.0125, 0.4, 0.9), Look(100, 80, 0.04375, 0.0375, 0.01, 1.0))
    taken = SequentialLooks(0.95, 100, 50, LookStop.DECIDED, looks)
    stopped = replace(made.evidence, confidence=0.95625, looks=taken)
    found = weighed(replace(made, evidence=stopped), 1000.0, 1e-6)
    assert found.looks is not None and found.sure == pytest.approx(1 - 0.0125 - 0.04375)
    assert {look.p_passed for look in found.looks.looks} == {1.0}


def compared(name: str, push: float, **receipt: object) -> Score:
    made = judged(side(f"two-{name}", push, 2.0), side("two-base", 2.0, 2.0), shift="noise")
    parameters = {"protocol": to_plain(ScoreProtocol())}
    return replace(made, receipt=replace(made.receipt, parameters=parameters, **receipt))


def job(found: Score) -> Any:
    response = found.to_message()
    return operation("operations/b", 4, state=pb.JOB_STATE_SUCCEEDED, response=response)


@pytest.fixture
def before() -> Path:
    save_result(Operation.from_message(job(compared("before", 0.6))), Path("before.json"))
    return Path("before.json")


def test_a_file_and_a_job_are_compared(acpc: Acpc, before: Path) -> None:
    acpc.server.script.append(job(compared("after", 0.3)))
    answer = acpc("diff", before, "b", "--protocol", "{confidence: 0.9}")
    assert acpc.server.requests["GetOperation"][0].name == "operations/b"
    for text in ("A: two-before", "B: two-after", "90 % interval", "relative IR", "lower"):
        assert text in answer.stdout
    assert "SR: share of anchors still apart" in answer.stdout
    assert "on 100 anchors, at 90 % of new trajectories like these: IR is lower" in answer.stdout
    assert "warning: trajectories are not known" in answer.stderr


def test_two_files_need_no_server(acpc: Acpc, before: Path) -> None:
    save_result(compared("after", 0.3), Path("after.npz"))
    answer = acpc("diff", before, Path("after.npz"), "-o", "json", "--protocol", "{resamples: 300}")
    found = json.loads(answer.stdout)
    assert (found["first"], found["second"]) == ("two-before", "two-after")
    assert found["ir_raw"]["change"] < 0 and found["ir_raw"]["interval"]["upper"] < 0
    assert not acpc.server.requests


def test_what_cannot_be_compared_is_wrong_usage(acpc: Acpc, before: Path) -> None:
    save_result(compared("after", 0.3, anchors_digest="b" * 64), Path("after.json"))
    answer = acpc("diff", before, Path("after.json"), code=2)
    assert "these scores cannot be compared: anchors of a is" in answer.stderr
    answer = acpc("diff", before, Path("gone.json"), code=2)
    assert "gone.json" in answer.stderr


@pytest.mark.parametrize(
    ("push", "code", "words"),
    [
        (0.3, 0, ""),
        (0.6, 5, "undecided: two-after may be worse than two-before, or may not"),
        (0.9, 3, "two-after is surely worse than two-before"),
    ],
    ids=["better", "alike", "worse"],
)
def test_a_gate_lets_pass_what_is_surely_no_worse(
    push: float, code: int, words: str, acpc: Acpc, before: Path
) -> None:
    save_result(compared("after", push), Path("after.npz"))
    asked = ("diff", before, Path("after.npz"), "--gate", "no-worse")
    answer = acpc(*asked, "--junit", Path("gate.xml"), code=code)
    assert words in answer.stderr
    assert ('failures="0"' in Path("gate.xml").read_text()) == (code != 3)
