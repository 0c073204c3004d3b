"""Jobs as the rest of the server sees them, what a kind of job is, and the JSON it records."""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from acpc.contract import JobState, Progress

from acpc_server.scheduling import RequestContext

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """Base of job descriptions: frozen plain data with all that can change a job's result."""


Spec = TypeVar("Spec", bound=JobSpec)
Part = TypeVar("Part")


@runtime_checkable
class Step(Protocol):
    """Takes the steps of a job; ``phase`` is for display."""

    def __call__(self, phase: str, work: Callable[[], Json]) -> Json:
        """Record the answer of ``work`` and return it, or the one that an earlier run recorded."""

    def each(
        self, phase: str, measure: Callable[[Part], Json], parts: Iterable[Part]
    ) -> Iterator[Json]:
        """Take a step for each part, a shard of the job, in order; yield their answers."""


class JobKind(Protocol[Spec]):
    """One kind of job."""

    name: str  # in the job record; never changes
    spec_type: type[Spec]  # of its job descriptions; no other kind has the same

    def stamp(self, spec: Spec) -> str:
        """Return what changes when the data that the job reads is replaced or written to."""

    def labels(self, spec: Spec) -> dict[str, str]:
        """Return what lists of jobs are filtered by, beside state, kind and time."""

    def count_steps(self, spec: Spec) -> int:
        """Return how many steps :meth:`run` takes at most."""

    def run(self, spec: Spec, stamp: str, step: Step, context: RequestContext) -> Json:
        """Compute the result of a job; ``stamp`` is that of its data when it was accepted.

        Equal specs take equal steps in the same order, whatever the load and the host, and results
        hold no time, so that a run that was interrupted ends with the bytes of one that was not.
        Nothing between steps takes long. May raise AcpcError.
        """


@dataclass(frozen=True)
class JobFailure:
    """The status a failed job ends with."""

    code: str
    reason: str
    message: str


@dataclass(frozen=True)
class JobFilter:
    """Which jobs to list; None, or an empty beginning, lets every job through."""

    state: JobState | None = None
    kind: str | None = None
    created_since: datetime | None = None  # knows its time zone
    labels: Mapping[str, str] = field(default_factory=dict)
    begins: str = ""  # hexadecimal digits and hyphens


@dataclass(frozen=True)
class Job:
    """A job of any kind. Times are seconds since the epoch; a listed job has no result.

    ``phases`` are the seconds of its last run by phase, once that has ended. ``spec`` is what its
    kind reads in what is ``recorded``, and ``progress`` as it is now; the record knows neither.
    """

    job_id: str
    owner: str  # who submitted it; empty on a server without authentication
    kind: str
    recorded: Json
    state: JobState
    created: float
    started: float | None
    ended: float | None
    attempts: int
    result: Json | None
    failure: JobFailure | None
    phases: Mapping[str, float]
    spec: JobSpec = field(default_factory=JobSpec)
    progress: Progress = field(default_factory=lambda: Progress.at("waiting", 0, 0))


def pack(array: np.ndarray) -> Json:
    """Pack an array as dtype, shape and base64 bytes; :func:`unpack` restores it bit for bit."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def unpack(value: Mapping[str, Any]) -> np.ndarray:
    """Return the array of :func:`pack`, read-only."""
    flat = np.frombuffer(base64.b64decode(value["data"]), dtype=value["dtype"])
    return flat.reshape(value["shape"])
