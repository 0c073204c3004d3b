"""Operations: the filter of their list, and their times when a clock was set in between."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from acpc.contract import Timing
from acpc_server.errors import InvalidArgument
from acpc_server.jobs import Job, JobFilter, JobSpec, JobState
from acpc_server.rpc import OperationWriter
from acpc_server.rpc.operations import OperationsServicer, read_filter
from google.longrunning import operations_pb2
from job_desk import bare_job

KINDS = ["score_checkpoint", "run_study"]
MORNING = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
GOOD = {
    "": JobFilter(),
    "  ": JobFilter(),
    "state=running": JobFilter(state=JobState.RUNNING),
    " state = FAILED ": JobFilter(state=JobState.FAILED),
    "kind=run_study": JobFilter(kind="run_study"),
    "checkpoint=tworoom/aug-3": JobFilter(labels={"checkpoint": "tworoom/aug-3"}),
    'checkpoint="a AND b=c"': JobFilter(labels={"checkpoint": "a AND b=c"}),
    "created>=2026-01-31T08:00:00Z": JobFilter(created_since=MORNING),
    "created>=2026-01-31T09:00:00+01:00": JobFilter(
        created_since=MORNING.astimezone(timezone(timedelta(hours=1)))
    ),
    "checkpoint=model AND state=queued AND created>=2026-01-31T08:00:00Z AND "
    "kind=score_checkpoint": JobFilter(
        JobState.QUEUED, "score_checkpoint", MORNING, {"checkpoint": "model"}
    ),
}
BAD = {
    "running": "no term",
    "state": "no term",
    "state=": "no term",
    "=running": "no term",
    'checkpoint="model': "no term",
    "size=3": "unknown key 'size'; known are state, kind, checkpoint, created",
    "state>=running": "write state=",
    "created=2026-01-31T08:00:00Z": "write created>=",
    "created<2026-01-31T08:00:00Z": "write created>=",
    "state=lost": "the states are queued, running, succeeded, failed, cancelled",
    "kind=score": "the kinds are score_checkpoint, run_study",
    "created>=yesterday": "RFC 3339",
    "created>=2026-01-31T08:00:00": "RFC 3339",
    "state=running state=queued": "join terms with AND",
    "state=running OR state=queued": "join terms with AND",
    "state=running and kind=run_study": "join terms with AND",
    "state=running AND": "AND",
    "state=running AND state=queued": "state is given twice",
    "checkpoint=" + "x" * 2000: "over 1000",
}


@pytest.mark.parametrize("text", GOOD)
def test_a_filter_says_which_jobs_are_listed(text: str) -> None:
    assert read_filter(text, KINDS) == GOOD[text]


@pytest.mark.parametrize("text", BAD)
def test_a_bad_filter_is_told_what_is_wrong(text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read_filter(text, KINDS)
    assert refused.value.field == "filter"
    assert BAD[text] in refused.value.description


class Told:
    """A kind of job whose metadata are its times."""

    name = "told"

    def metadata(self, spec: JobSpec, life: Mapping[str, Any]) -> Timing:
        timing: Timing = life["timing"]
        return timing

    def answer(self, spec: JobSpec, result: Mapping[str, Any]) -> Timing:
        raise AssertionError("it has none")


@pytest.mark.parametrize(
    ("created", "started", "ended", "expected"),
    [
        (100.0, 103.0, 110.0, (3.0, 7.0, 10.0)),
        (100.0, None, 110.0, (10.0, 0.0, 10.0)),
        (3700.0, 103.0, 110.0, (0.0, 0.0, 0.0)),  # set back by an hour while it was queued
        (3700.0, 3703.0, 110.0, (3.0, 0.0, 3.0)),  # while it ran
    ],
)
def test_no_time_is_negative(
    created: float, started: float | None, ended: float, expected: tuple[float, float, float]
) -> None:
    told = {"kind": "told", "state": JobState.FAILED, "created": created, "started": started}
    job = bare_job(**told, ended=ended)
    message = Timing.message_type()
    assert OperationWriter([Told()]).write(job).metadata.Unpack(message)
    assert Timing.from_message(message) == Timing(*expected)


@dataclass(frozen=True)
class Listed:
    """Jobs that are there, and written as operations of a megabyte each."""

    count: int
    kinds: tuple[str, ...] = tuple(KINDS)

    def write(self, job: Job) -> operations_pb2.Operation:
        operation = operations_pb2.Operation(name=job.job_id)
        operation.metadata.value = bytes(2**20 - 2**6)
        return operation

    def list(self, start: int, most: int, _: JobFilter) -> list[Job]:
        return [bare_job(job_id=f"{n}") for n in range(start, min(start + most, self.count))]


def test_a_page_ends_before_a_message_does() -> None:
    listed = Listed(7)
    servicer = OperationsServicer(listed, listed)
    tokens, names = ["", "3", "6", ""], []
    for token, following in pairwise(tokens):
        request = operations_pb2.ListOperationsRequest(page_token=token)
        page = servicer.ListOperations(request, None)
        assert page.ByteSize() < 2**22
        assert page.next_page_token == following
        names += [operation.name for operation in page.operations]
    assert names == [f"{n}" for n in range(7)]
