"""How sure a score is, over the wire: jobs that stop when they know, and what gates make of it."""

import json

import grpc
import pytest
import wire
from acpc.v1 import receipt_pb2
from acpc.v1 import scoring_service_pb2 as pb
from acpc.v1.anchor_service_pb2 import CreateAnchorSetRequest
from job_world import JobCaller, metadata, response
from public_dataset import public_columns, write_public_dataset
from served_world import ServedWorld

LIMIT, BATCH = 160, 40
# Intervals need trajectories, of which the world's own dataset has three, looks need more.
EPISODES, NAME = (40,) * 200, "episodes.h5"
DATASET = {"dataset": NAME, "task": "tworoom"}
# What any anchors pass or fail, whatever the last bits of their numbers are.
PASSES, FAILS = {"ir": 1e6, "sr": 1e-12}, {"ir": 1e-6, "sr": 1e-12}


@pytest.fixture(scope="module", autouse=True)
def episodes(world: ServedWorld) -> None:
    write_public_dataset(world.dataset_root / NAME, public_columns(EPISODES, side=28))


@pytest.fixture(scope="module")
def caller(channel: grpc.Channel) -> JobCaller:
    return JobCaller(channel)


def asked(count: int, **changed: object) -> pb.ScoreCheckpointRequest:
    return wire.score(
        dataset={**DATASET, "count": count}, reference={"name": "lewm-base"}, **changed
    )


def apart(score: pb.ScoreCheckpointResponse) -> tuple[dict[str, object], receipt_pb2.Receipt]:
    parameters = json.loads(score.receipt.parameters)
    rest = type(score.receipt)()
    rest.CopyFrom(score.receipt)
    rest.ClearField("parameters")
    rest.ClearField("parameters_digest")
    return parameters, rest


@pytest.mark.parametrize(
    ("thresholds", "outcome"), [(PASSES, pb.OUTCOME_DOES_NOT_FIT), (FAILS, pb.OUTCOME_FAILED)]
)
def test_a_job_that_stops_when_decided_is_the_job_of_that_size(
    caller: JobCaller, thresholds: dict[str, float], outcome: int
) -> None:
    request = asked(LIMIT, thresholds=thresholds, until_decided={"batch": BATCH})
    done = caller.finished(caller.submit(request).name)
    stopped = response(done)
    size = stopped.checkpoint.anchors
    assert size < LIMIT
    fixed = caller.result(asked(size, thresholds=thresholds))
    for part in ("checkpoint", "reference", "verdict"):
        ours, theirs = getattr(stopped, part), getattr(fixed, part)
        assert ours.SerializeToString(deterministic=True) == theirs.SerializeToString(
            deterministic=True
        ), part
    assert stopped.verdict.outcome == stopped.evidence.confident_outcome == outcome

    looks = stopped.evidence.looks
    assert not fixed.evidence.HasField("looks")
    assert [look.anchors for look in looks.looks] == [BATCH, size]
    assert (looks.stop, looks.limit, looks.batch) == (pb.LOOK_STOP_DECIDED, LIMIT, BATCH)
    assert looks.confidence == fixed.evidence.confidence < stopped.evidence.confidence
    assert metadata(done).request.until_decided.batch == BATCH
    last, ends = looks.looks[-1], stopped.evidence
    if thresholds is PASSES:
        assert ends.ir_relative.upper <= thresholds["ir"] and ends.sr.lower >= thresholds["sr"]
        assert last.p_passed <= last.passing
    else:
        assert ends.ir_relative.lower > thresholds["ir"] and last.p_failed <= last.failing

    (parameters, receipt), (plain, other) = apart(stopped), apart(fixed)
    assert receipt == other
    stopping = parameters.pop("until_decided")
    assert (stopping["limit"], stopping["batch"]) == (LIMIT, BATCH)
    assert parameters == plain
    assert stopped.receipt.parameters_digest != fixed.receipt.parameters_digest

    options = {"confidence": ends.confidence, "resamples": ends.resamples}
    as_sure = caller.result(asked(size, thresholds=thresholds, evidence=options)).evidence
    ends.ClearField("looks")
    assert ends == as_sure, "as if nobody had looked before, at the confidence of the look"


def test_a_job_on_a_set_looks_at_the_first_anchors_of_it(caller: JobCaller) -> None:
    source = {**DATASET, "count": LIMIT}
    made = CreateAnchorSetRequest(source=source, history=wire.HISTORY, horizon=wire.HORIZON)
    own = {"dataset": None, "anchor_set": caller.anchors.CreateAnchorSet(made).anchor_set.digest}
    looking = {"thresholds": FAILS, "until_decided": {"batch": BATCH}}
    of_dataset, of_set = (
        caller.result(wire.score(reference={"name": "lewm-base"}, **looking, **anchors)).checkpoint
        for anchors in ({"dataset": source}, own)
    )
    assert of_set.anchors == of_dataset.anchors < LIMIT
    for name in ("anchor_ids", "radius", "motion_scale", "draw_radius"):
        found, wanted = (getattr(x.anchor_values, name) for x in (of_set, of_dataset))
        assert found == wanted, name


def test_what_is_not_decided_stops_at_the_limit(caller: JobCaller) -> None:
    """Its thresholds are the numbers of all anchors themselves; the looks share the error."""
    few = 45
    whole = caller.result(asked(few))
    borderline = {"ir": whole.verdict.ir_relative, "sr": 0.01}
    request = asked(few, thresholds=borderline, until_decided={"batch": 20})
    done = caller.finished(caller.submit(request).name)
    stopped, progress = response(done), metadata(done).progress
    assert progress.completed == progress.total
    fixed = caller.result(asked(few, thresholds=borderline))
    for part in ("checkpoint", "reference", "verdict"):
        assert getattr(stopped, part) == getattr(fixed, part), part
    looks = stopped.evidence.looks
    assert (looks.stop, looks.limit) == (pb.LOOK_STOP_LIMIT, few)
    assert looks.confidence == 0.95 < stopped.evidence.confidence
    assert sum(look.failing for look in looks.looks) == pytest.approx(0.05)
    assert sum(look.passing for look in looks.looks) <= 0.05 + 1e-12


def test_a_look_at_which_no_anchor_is_eligible_decides_nothing(caller: JobCaller) -> None:
    """The next one may have some; at the limit the job fails as the fixed one does."""
    request = asked(24, protocol={"draws": 1, "horizon": 4, "neighbourhood": 1e-9})
    request.until_decided.batch = 6
    failed = caller.finished(caller.submit(request).name).error
    assert "none of the 24 anchors" in failed.message


def test_without_a_number_or_a_protocol_it_measures_until_it_is_decided(caller: JobCaller) -> None:
    """A protocol named has the paper's hundred anchors; a small dataset has no more than it has."""
    request = asked(LIMIT, thresholds=PASSES)
    request.dataset.ClearField("count")
    done = caller.finished(caller.submit(request).name)
    held, found = metadata(done).request, response(done).evidence
    assert held.until_decided.batch == 25 and held.evidence.population == pb.POPULATION_DATASET
    assert held.dataset.count == min(400, found.windows) == found.looks.limit
    assert found.population == pb.POPULATION_DATASET
    assert found.other.population == pb.POPULATION_TRAJECTORIES
    request = asked(LIMIT, thresholds=PASSES)
    request.dataset.ClearField("count")
    request.protocol.reading = receipt_pb2.PROTOCOL_READING_PAPER
    named = caller.finished(caller.submit(request).name)
    assert metadata(named).request.dataset.count == 100
    assert not metadata(named).request.HasField("until_decided")
