"""A measurement finds its own jobs again, and never those of another one."""

from dataclasses import replace

import pytest
from acpc_client import AcpcClient, GaussianNoise, ScoreProtocol
from acpc_lab.studies.measuring import (
    Ask,
    CheckpointRows,
    MeasuringProgress,
    StudyCheckpoint,
    measure,
    read_checkpoints,
)
from job_counterparty import JobParty

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
        if all(status.operation for status in now.tasks):
            raise Interruption

    with pytest.raises(Interruption):
        measure(client, rows_of(*names), ASK, interrupt)


def measured(client: AcpcClient, *names: str) -> list[str]:
    """Names of the checkpoints that the answers are of."""
    answers = measure(client, rows_of(*names), ASK)
    return [item.answer.checkpoint.checkpoint.name for item in answers]


def test_an_interrupted_measurement_doubles_no_job(client: AcpcClient, party: JobParty) -> None:
    interrupted(client, "a", "b")
    assert measured(client, "b", "a") == ["b", "a"], "in any order, under any run"
    assert [job.request.checkpoint.name for job in party.jobs.values()] == ["a", "b"]


def test_another_measurement_takes_no_answers_of_the_one_before(
    client: AcpcClient, party: JobParty
) -> None:
    interrupted(client, "a", "b")
    assert measured(client, "a", "c") == ["a", "c"]
    for other in (
        Ask(ASK.request, GaussianNoise(0.02)),
        replace(ASK, request=ScoreProtocol(3)),
    ):
        measure(client, rows_of("a"), other)
    asked = [job.request.checkpoint.name for job in party.jobs.values()]
    assert asked == ["a", "b", "c", "a", "a"]


def test_all_are_scored_on_one_number_of_anchors(client: AcpcClient, party: JobParty) -> None:
    """And none until it is decided, which takes more anchors of one checkpoint than of another."""
    measure(client, rows_of("a", "b", count=None), ASK)
    assert [job.request.dataset.count for job in party.jobs.values()] == [100, 100]
    assert not any(job.request.HasField("until_decided") for job in party.jobs.values())
