"""Campaigns without a folder: measurements that find their jobs again, scores as they come."""

from dataclasses import replace

import pytest
from acpc_client import AcpcClient, DatasetAnchors, GaussianNoise, ScoreProtocol
from acpc_lab.campaigns import Stopped
from acpc_lab.integrations import EpochScore, EpochScorer
from acpc_lab.studies.measuring import (
    Ask,
    CheckpointRows,
    MeasuringProgress,
    StudyCheckpoint,
    measure,
    read_checkpoints,
)
from sweep_plans import Scene
from waiting import wait_until

ASK = Ask(ScoreProtocol(), GaussianNoise(0.08))


class Interruption(Exception):
    """Stands for the end of the process."""


def rows_of(*names: str, count: int | None = 8) -> tuple[StudyCheckpoint, ...]:
    runs = [str(run) for run in range(len(names))]
    room, file, preset = (["x"] * len(names) for _ in range(3))
    columns = {"task": room, "run": runs, "checkpoint": names, "dataset": file, "preset": preset}
    return read_checkpoints(CheckpointRows.of(columns), count=count)


def interrupted(client: AcpcClient, *names: str) -> None:
    """Measures until every job is at the server."""

    def interrupt(now: MeasuringProgress) -> None:
        if all(task.entry.operation for task in now.tasks):
            raise Interruption

    with pytest.raises(Interruption):
        measure(client, rows_of(*names), ASK, interrupt)


def measured(client: AcpcClient, *names: str) -> list[str]:
    """Names of the checkpoints that the answers are of."""
    answers = measure(client, rows_of(*names), ASK)
    return [item.answer.checkpoint.checkpoint.name for item in answers]


def test_an_interrupted_measurement_doubles_no_job(at: Scene) -> None:
    interrupted(at.client, "a", "b")
    assert measured(at.client, "b", "a") == ["b", "a"], "in any order, under any run"
    assert [job.request.checkpoint.name for job in at.party.jobs.values()] == ["a", "b"]


def test_another_measurement_takes_no_answers_of_the_one_before(at: Scene) -> None:
    interrupted(at.client, "a", "b")
    assert measured(at.client, "a", "c") == ["a", "c"]
    for other in (
        Ask(ASK.request, GaussianNoise(0.02)),
        replace(ASK, request=ScoreProtocol(3)),
    ):
        measure(at.client, rows_of("a"), other)
    asked = [job.request.checkpoint.name for job in at.party.jobs.values()]
    assert asked == ["a", "b", "c", "a", "a"]


def test_all_are_scored_on_one_number_of_anchors(at: Scene) -> None:
    """And none until it is decided, which takes more anchors of one checkpoint than of another."""
    measure(at.client, rows_of("a", "b", count=None), ASK)
    assert [job.request.dataset.count for job in at.party.jobs.values()] == [100, 100]
    assert not any(job.request.HasField("until_decided") for job in at.party.jobs.values())


@pytest.mark.parametrize("closed", [False, True])
def test_a_scorer_hands_out_each_score_as_its_job_ends_and_every_shift_once(
    at: Scene, closed: bool
) -> None:
    at.party.looks = 10**6
    shifts = [GaussianNoise(0.02), GaussianNoise(0.08)]
    early: list[EpochScore] = []
    with EpochScorer(at.client, DatasetAnchors("rooms.h5", "tworoom"), shifts) as scorer:
        scorer.submit(3, "a")
        wait_until(lambda: len(at.party.jobs) == 2)
        slow, fast = at.party.jobs.values()
        fast.looks = 0
        wait_until(lambda: early.extend(scorer.arrived()) or bool(early))
        assert not scorer.drain(0), "the other shift is still measured"
        if not closed:
            slow.looks = 0
            assert scorer.drain(60)
    (first,), (last,) = early, scorer.arrived()
    assert [(item.epoch, item.shift) for item in (first, last)] == [(3, shifts[1]), (3, shifts[0])]
    assert (first.error, first.score is None) == (None, False)
    assert isinstance(last.error, Stopped) if closed else last.error is None
