"""What a measurement keeps in its folder, and what it never takes from another one."""

from pathlib import Path

import pytest
from acpc_client import AcpcClient, GaussianNoise, ScoreProtocol
from acpc_client.errors import ArgumentError
from acpc_lab.campaigns import Journal
from acpc_lab.studies.measuring import (
    EVENTS,
    JOURNAL,
    AskScore,
    CheckpointRows,
    MeasuringProgress,
    StudyCheckpoint,
    measure,
    read_checkpoints,
)
from job_counterparty import JobParty

ASK = AskScore(GaussianNoise(0.08), ScoreProtocol())


class Interruption(Exception):
    """Stands for the end of the process."""


def rows_of(*names: str) -> tuple[StudyCheckpoint, ...]:
    runs = [str(run) for run in range(len(names))]
    room, file, preset = (["x"] * len(names) for _ in range(3))
    columns = {"task": room, "run": runs, "checkpoint": names, "dataset": file, "preset": preset}
    return read_checkpoints(CheckpointRows.of(columns), count=8)


def interrupted(client: AcpcClient, folder: Path, *names: str) -> None:
    """Measures until every job is at the server."""

    def interrupt(now: MeasuringProgress) -> None:
        if all(status.operation for status in now.tasks):
            raise Interruption

    with pytest.raises(Interruption):
        measure(client, rows_of(*names), ASK, folder, interrupt)


def measured(client: AcpcClient, folder: Path, *names: str) -> list[str]:
    """Names of the checkpoints that the answers are of."""
    answers = measure(client, rows_of(*names), ASK, folder)
    return [item.answer.checkpoint.checkpoint.name for item in answers]


@pytest.mark.parametrize("put_back", [False, True])
def test_another_measurement_takes_no_answers_of_the_one_before(
    put_back: bool, client: AcpcClient, party: JobParty, tmp_path: Path
) -> None:
    interrupted(client, tmp_path, "a", "b")
    before = (tmp_path / EVENTS).read_bytes()
    (tmp_path / JOURNAL).unlink()
    if put_back:  # events of another measurement, wherever they come from
        interrupted(client, tmp_path, "c", "d")
        assert before not in (tmp_path / EVENTS).read_bytes()
        (tmp_path / EVENTS).write_bytes(before)
    assert measured(client, tmp_path, "c", "d") == ["c", "d"]
    assert [job.request.checkpoint.name for job in party.jobs.values()] == ["a", "b", "c", "d"]
    assert not list(tmp_path.iterdir())


def test_a_process_that_ends_while_it_cleans_up_leaves_no_events(
    client: AcpcClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(journal: Journal) -> None:
        raise Interruption

    with monkeypatch.context() as patch, pytest.raises(Interruption):
        patch.setattr(Journal, "remove", interrupt)
        measured(client, tmp_path, "a", "b")
    assert not (tmp_path / JOURNAL).exists()
    assert (tmp_path / EVENTS).read_bytes() == b""
    assert measured(client, tmp_path, "b", "a") == ["b", "a"]


@pytest.mark.parametrize("content", ["{", "[]", '{"digest": "x"}', None])
def test_a_measurement_that_is_rejected_writes_nothing(
    content: str | None, client: AcpcClient, party: JobParty, tmp_path: Path
) -> None:
    interrupted(client, tmp_path, "a")
    for file in tmp_path.iterdir():
        if file.name != JOURNAL:
            file.unlink()
    if content is not None:
        (tmp_path / JOURNAL).write_text(content)
    with pytest.raises(ArgumentError, match=f"{JOURNAL} and {EVENTS} beside it"):
        measured(client, tmp_path, "b")
    assert [file.name for file in tmp_path.iterdir()] == [JOURNAL]
    assert len(party.jobs) == 1
