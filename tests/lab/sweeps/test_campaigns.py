"""The engine under sweeps, studies and callbacks, on tasks that nobody writes down."""

import uuid
from collections import deque
from dataclasses import dataclass, field

import grpc
import pytest
from acpc_client import AcpcClient, DatasetAnchors, GaussianNoise, Operation, Score
from acpc_client.errors import Internal
from acpc_lab.campaigns import (
    Campaign,
    CampaignProgress,
    Entry,
    Link,
    Options,
    Records,
    TaskState,
)
from client_messages import status
from job_counterparty import JobParty

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
        client, Link(), tasks, Options(concurrency=2, poll=0.01), on_update=seen.append
    )
    campaign.run()
    assert all(task.score is not None for task in tasks)
    assert (len(party.jobs), party.most) == (5, 2)
    assert seen[-1].counts == {TaskState.SUCCEEDED: 5}
    assert seen[-1].done == 5


def test_what_is_kept_is_asked_of_no_server(client: AcpcClient, party: JobParty) -> None:
    done = Entry(TaskState.SUCCEEDED, 1, "operations/1")
    tasks = [Task("0", kept=True)]
    campaign = Campaign(client, Link(), tasks, Options(poll=0.01), Records(entries={"0": done}))
    campaign.run()
    assert not party.requests
    assert campaign.statuses[0].state is TaskState.SUCCEEDED


@pytest.mark.parametrize("stop", [False, True])
def test_a_failure_ends_the_run_only_where_asked_to(
    client: AcpcClient, party: JobParty, stop: bool
) -> None:
    party.fates["a"] = deque([BROKE])
    tasks = [Task(str(index)) for index in range(4)]
    options = Options(concurrency=1, stop_at_failure=stop, poll=0.01)
    campaign = Campaign(client, Link(), tasks, options)
    campaign.run()
    first, *others = campaign.statuses
    assert first.state is TaskState.FAILED
    assert isinstance(first.problem, Internal)
    wanted = TaskState.PENDING if stop else TaskState.SUCCEEDED
    assert {status.state for status in others} == {wanted}
