"""The filter of ListOperations: what it lets through, and what it says of a bad one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from acpc_server.errors import InvalidArgument
from acpc_server.jobs import JobFilter, JobState
from acpc_server.rpc.operations import read_filter

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
