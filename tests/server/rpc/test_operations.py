"""What a caller reads and writes: operations and their filter, pages, a status, tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from acpc.contract import Axes, Timing, read_tensor, write_tensor
from acpc.v1.dataset_service_pb2 import ListDatasetsRequest
from acpc_server import errors
from acpc_server.errors import InvalidArgument
from acpc_server.jobs import Job, JobFilter, JobSpec, JobState
from acpc_server.rpc import JobServicer, OperationWriter
from acpc_server.rpc.call import MAX_TEXT_BYTES, plain_status, to_status
from acpc_server.rpc.operations import read_filter
from acpc_server.rpc.request import MAX_OFFSET, page_of
from google.longrunning import operations_pb2
from hypothesis import given
from hypothesis import strategies as st
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
# The term that is found to be bad in each.
BAD = {
    "running": "running",
    "state": "state",
    "state=": "state=",
    "=running": "=running",
    'checkpoint="model': 'checkpoint="model',
    'checkpoint=a"b': 'checkpoint=a"b',
    "size=3": "size=3",
    "state>=running": "state>=running",
    "created=2026-01-31T08:00:00Z": "created=2026-01-31T08:00:00Z",
    "created<2026-01-31T08:00:00Z": "created<2026-01-31T08:00:00Z",
    "kind=run_study AND state=lost": "state=lost",
    "kind=score AND state=running": "kind=score",
    "created>=yesterday": "created>=yesterday",
    "created>=2026-01-31T08:00:00": "created>=2026-01-31T08:00:00",
    "state=running state=queued": "state=running state=queued",
    "state=running OR state=queued": "state=running OR state=queued",
    "state=running and kind=run_study": "state=running and kind=run_study",
    "state=running AND": "state=running AND",
    "state=running AND state=queued": "state=queued",
}


@pytest.mark.parametrize("text", GOOD)
def test_a_filter_says_which_jobs_are_listed(text: str) -> None:
    assert read_filter(text, KINDS) == GOOD[text]


@pytest.mark.parametrize("text", BAD)
def test_a_bad_filter_is_told_what_is_wrong(text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read_filter(text, KINDS)
    assert refused.value.field == "filter"
    assert refused.value.description.startswith(f"found {BAD[text]!r}; join terms with AND")


def test_a_filter_has_a_thousand_characters() -> None:
    with pytest.raises(InvalidArgument, match="over 1000"):
        read_filter("checkpoint=" + "x" * 2000, KINDS)


class Told:
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
    servicer = JobServicer(listed, listed, *[None] * 5)
    tokens, names = ["", "3", "6", ""], []
    for token, following in pairwise(tokens):
        request = operations_pb2.ListOperationsRequest(page_token=token)
        page = servicer.ListOperations(request, None)
        assert page.ByteSize() < 2**22
        assert page.next_page_token == following
        names += [operation.name for operation in page.operations]
    assert names == [f"{n}" for n in range(7)]


def page(rows: int, size: int, token: str) -> tuple[list[int], str]:
    asked = ListDatasetsRequest(page_size=size, page_token=token)
    return page_of(asked, range(rows), int)


@given(st.integers(0, 50), st.integers(1, 7))
def test_pages_cover_a_list_once(rows: int, size: int) -> None:
    seen, token = page(rows, size, "")
    while token:
        following, token = page(rows, size, token)
        assert following, "no page is empty but the only one"
        seen += following
    assert seen == list(range(rows))


def test_the_last_offset_is_a_token_and_the_next_is_not() -> None:
    assert page(1, 1, str(MAX_OFFSET)) == ([], "")
    with pytest.raises(errors.InvalidArgument):
        page(1, 1, str(MAX_OFFSET + 1))


@given(st.text(min_size=1, max_size=20), st.integers(1, 400))
def test_long_texts_are_cut_at_a_character(text: str, times: int) -> None:
    message = text * times
    shown = plain_status("INTERNAL", message).message
    assert len(shown.encode()) <= MAX_TEXT_BYTES
    whole = message.encode("utf-8", "replace").decode()
    assert shown == whole or (shown.endswith("...") and whole.startswith(shown[:-3]))


def test_a_status_of_the_worst_error_fits_the_trailers() -> None:
    error = errors.InvalidArgument("\u1234" * 9000, "\u1234" * 9000)
    status = to_status(error, "\u1234" * 128)
    # The message goes percent-encoded, the details in base64 at worst.
    size = 9 * len(status.message) + 4 * len(status.SerializeToString()) // 3
    assert size < 8000


def read_floats(values: np.ndarray) -> np.ndarray:
    axes = Axes("a, b", of_frames=False)
    read = axes.converted(read_tensor(write_tensor(values), "x"))
    axes.check(read, "x")
    return read


def test_floats_are_float32_and_name_the_first_that_is_not_finite() -> None:
    for dtype in ("f2", "f4", "f8"):
        values = np.array([[0.5, -2.0]], dtype)
        read = read_floats(values)
        assert read.dtype == np.float32 and (read == values).all()
    bad = np.array([[0, 0], [np.inf, np.nan]], "f4")
    with pytest.raises(InvalidArgument, match=r"x\.data: not finite in float32 at index \[1, 0\]"):
        read_floats(bad)
