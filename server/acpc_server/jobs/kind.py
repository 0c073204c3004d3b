"""Jobs as the rest of the server sees them, what a kind of job is, and the JSON it records."""

from __future__ import annotations

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
    """Base of job descriptions: a job as data, with everything that can change its result.

    Frozen dataclasses that ``acpc.contract.to_plain`` writes and ``from_plain`` reads.
    """


Spec = TypeVar("Spec", bound=JobSpec)
Part = TypeVar("Part")


@runtime_checkable
class Step(Protocol):
    """The steps of a job. ``phase`` says what is being done, for display."""

    def __call__(self, phase: str, work: Callable[[], Json]) -> Json:
        """Does ``work`` and records its answer; returns the one that an earlier run recorded."""
        ...

    def each(
        self, phase: str, measure: Callable[[Part], Json], parts: Iterable[Part]
    ) -> Iterator[Json]:
        """Does a step for each part, a shard of the job, in order; yields their answers."""
        ...


class JobKind(Protocol[Spec]):
    """One kind of job."""

    @property
    def name(self) -> str:
        """Name in the job record; never changes."""
        ...

    @property
    def spec_type(self) -> type[Spec]:
        """Type of its job descriptions; no other kind has the same."""
        ...

    def stamp(self, spec: Spec) -> str:
        """Changes when the data that the job reads is replaced or written to."""
        ...

    def labels(self, spec: Spec) -> dict[str, str]:
        """What lists of jobs are filtered by, beside state, kind and time."""
        ...

    def count_steps(self, spec: Spec) -> int:
        """How many steps :meth:`run` takes at most."""
        ...

    def run(self, spec: Spec, stamp: str, step: Step, context: RequestContext) -> Json:
        """The result of a job whose data had ``stamp`` when it was accepted.

        Equal specs take equal steps in the same order, whatever the load and the host, and results
        hold no time, so that a run that was interrupted ends with the bytes of one that was not.
        Nothing between steps takes long.

        Raises:
            AcpcError: The job cannot be done.
        """
        ...


@dataclass(frozen=True)
class JobFailure:
    """The status a failed job ends with."""

    code: str
    reason: str
    message: str


@dataclass(frozen=True)
class Owner:
    """Who submitted a job.

    Attributes:
        tenant: Whose job it is: no other tenant sees it. Empty on a server without authentication.
        caller: Who of that tenant; empty when unknown.
    """

    tenant: str = ""
    caller: str = ""


NOBODY = Owner()
"""Whose jobs are on a server without authentication."""


@dataclass(frozen=True)
class JobFilter:
    """Which jobs to list, by state, kind, labels, time and the beginning of their ids.

    None, or an empty beginning, lets every job through.
    """

    state: JobState | None = None
    kind: str | None = None
    created_since: datetime | None = None  # knows its time zone
    labels: Mapping[str, str] = field(default_factory=dict)
    begins: str = ""  # hexadecimal digits and hyphens


@dataclass(frozen=True)
class Row:
    """One job as recorded. Times are seconds since the epoch; a listed job has no result."""

    job_id: str
    owner: Owner
    kind: str
    recorded: Json
    state: JobState
    created: float
    started: float | None
    ended: float | None
    attempts: int
    result: Json | None
    failure: JobFailure | None


@dataclass(frozen=True)
class Job(Row):
    """One job of any kind, its description read, and how far it is."""

    spec: JobSpec
    progress: Progress


def pack(array: np.ndarray) -> Json:
    """An array as dtype, shape and base64 bytes; restored bit for bit by :func:`unpack`."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def unpack(value: Mapping[str, Any]) -> np.ndarray:
    """Inverse of :func:`pack`; the array is read-only."""
    flat = np.frombuffer(base64.b64decode(value["data"]), dtype=value["dtype"])
    return flat.reshape(value["shape"])
