"""The times of an operation, also when a clock was set in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from acpc.contract import Progress, Timing
from acpc_server.jobs import Job, JobSpec, JobState, Owner
from acpc_server.rpc import OperationWriter


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
    job = Job(
        job_id="a",
        owner=Owner(),
        kind="told",
        recorded={},
        state=JobState.FAILED,
        created=created,
        started=started,
        ended=ended,
        attempts=1,
        result=None,
        failure=None,
        spec=JobSpec(),
        progress=Progress.at("failed", 0, 1),
    )
    message = Timing.message_type()
    assert OperationWriter([Told()]).write(job).metadata.Unpack(message)
    assert Timing.from_message(message) == Timing(*expected)
