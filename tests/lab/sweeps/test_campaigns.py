"""The engine under sweeps, studies and callbacks, on tasks that nobody writes down."""

import json
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from acpc_client import AcpcClient, DatasetAnchors, GaussianNoise, Operation, Score
from acpc_client.errors import Internal
from acpc_lab.campaigns import (
    Campaign,
    CampaignProgress,
    Journal,
    Link,
    Options,
    Stopped,
    TaskState,
)
from acpc_lab.integrations import EpochScore, EpochScorer
from client_messages import status
from job_counterparty import JobParty
from waiting import wait_until

BROKE = status(grpc.StatusCode.INTERNAL, "it broke")


@dataclass(eq=False)
class Task:
    """A score that is kept in memory."""

    id: str
    kept: bool = False
    score: Score | None = None
    identity: uuid.UUID = field(default_factory=uuid.uuid4)

    @property
    def title(self) -> str:
        return f"task {self.id}"

    def submit(self, client: AcpcClient, attempt: int) -> Operation:
        request_id = str(uuid.uuid5(self.identity, str(attempt)))
        anchors, shift = DatasetAnchors("rooms.h5", "tworoom"), GaussianNoise(0.02)
        return client.score_checkpoint("a", anchors, shift, request_id=request_id).submitted

    def keep(self, operation: Operation) -> None:
        self.score = operation.result()


def test_tasks_without_a_journal_have_one_job_each(client: AcpcClient, party: JobParty) -> None:
    tasks = [Task(str(index)) for index in range(5)]
    seen: list[CampaignProgress[Task]] = []
    campaign = Campaign(
        client, Link(client), tasks, Options(concurrency=2, poll=0.01), on_update=seen.append
    )
    campaign.run()
    assert all(task.score is not None for task in tasks)
    assert (len(party.jobs), party.most) == (5, 2)
    assert seen[-1].counts == {TaskState.SUCCEEDED: 5}
    assert seen[-1].done == 5


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A journal in which a thousand tasks are done."""
    made = Journal(tmp_path)
    with made.writing():
        pass
    held = {"event": "moved", "state": "succeeded", "attempt": 1, "operation": "operations/1"}
    made.path.write_text("".join(f"{json.dumps({**held, 'cell': str(i)})}\n" for i in range(1000)))
    with made.writing():
        yield made


def test_what_is_kept_is_asked_of_no_server(
    client: AcpcClient, party: JobParty, journal: Journal
) -> None:
    done = [Task(str(index), kept=True) for index in range(1000)]
    campaign = Campaign(client, Link(client), done, Options(poll=0.01), journal)
    campaign.run()
    assert not party.requests
    assert {status.state for status in campaign.statuses} == {TaskState.SUCCEEDED}
    campaign.add([Task("last")])
    campaign.run()
    assert len(party.jobs) == 1
    assert len(campaign.statuses) == 1001


def test_jobs_are_looked_at_in_turns(client: AcpcClient, party: JobParty) -> None:
    """Those at the server are not all asked for at once, and each is asked for."""
    party.looks = 1
    tasks = [Task(str(index)) for index in range(40)]
    campaign = Campaign(client, Link(client), tasks, Options())
    campaign.turn()
    assert (len(party.jobs), len(party.requests["GetOperation"])) == (40, 12)
    while campaign.turn():
        pass
    assert all(task.score is not None for task in tasks)


def test_a_failure_does_not_end_the_run(client: AcpcClient, party: JobParty) -> None:
    party.fates["a"] = deque([BROKE])
    tasks = [Task(str(index)) for index in range(4)]
    campaign = Campaign(client, Link(client), tasks, Options(concurrency=1, poll=0.01))
    campaign.run()
    first, *others = campaign.statuses
    assert first.state is TaskState.FAILED
    assert isinstance(first.problem, Internal)
    assert {status.state for status in others} == {TaskState.SUCCEEDED}


@pytest.mark.parametrize("closed", [False, True])
def test_a_scorer_hands_out_each_score_as_its_job_ends_and_every_shift_once(
    client: AcpcClient, party: JobParty, closed: bool
) -> None:
    party.looks = 10**6
    shifts = [GaussianNoise(0.02), GaussianNoise(0.08)]
    early: list[EpochScore] = []
    with EpochScorer(client, DatasetAnchors("rooms.h5", "tworoom"), shifts) as scorer:
        scorer.submit(3, "a")
        wait_until(lambda: len(party.jobs) == 2)
        slow, fast = party.jobs.values()
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
