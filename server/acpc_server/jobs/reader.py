"""Reads jobs from the record, with their progress on whatever host they run."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

from acpc.contract import from_plain

from acpc_server.errors import FailedPrecondition, InvalidArgument, NotFound, only_one
from acpc_server.jobs.kind import Job, JobFilter, JobKind, JobState, Progress, Row
from acpc_server.jobs.lease import Hosts
from acpc_server.jobs.runs import RunningJobs

# Hosts report the progress of their jobs about once a second.
REPORT_SECONDS = 1.0
LATEST = "latest"
_BEGINNING = re.compile(r"[0-9a-f-]{6,35}")
_MAX_CANDIDATES = 20


class JobReader:
    """Reads jobs of every kind."""

    def __init__(
        self, kinds: Mapping[str, JobKind[Any]], running: RunningJobs, hosts: Hosts
    ) -> None:
        self._kinds = kinds
        self._running = running
        self._record = hosts.record
        self._hosts = hosts
        self._lock = threading.Lock()
        self._reports: dict[str, Progress] = {}
        self._reported = -REPORT_SECONDS

    def get(self, job_id: str, tenant: str) -> Job:
        """The job of a tenant, with its result if it has one.

        Raises:
            NotFound: The tenant has no such job.
            FailedPrecondition: A newer release accepted it, in a form that this one cannot read.
        """
        row = self._record.get(job_id)
        if row is None or row.owner.tenant != tenant or row.kind not in self._kinds:
            raise NotFound(f"no operation is named operations/{job_id}")
        for job in self._jobs([row]):
            return job
        raise FailedPrecondition(
            f"operations/{job_id} was submitted to a newer release; ask a server of that release",
            reason="NEWER_RELEASE",
        )

    def several(self, job_ids: Collection[str]) -> dict[str, Job]:
        """Jobs of any tenant without their results, those that are there and can be read."""
        return {job.job_id: job for job in self._jobs(self._record.rows(job_ids).values())}

    def find(self, name: str, alias: str, tenant: str) -> str:
        """The id of the tenant's job that a name means.

        Args:
            name: ``latest``, or at least 6 characters with which the id begins.
            alias: Id of the job whose request id ``name`` would be.
            tenant: Whose job it is.

        Raises:
            NotFound: The tenant has no such job.
            InvalidArgument: Several ids begin so.
        """
        row = self._record.get(alias)
        if row is not None and row.owner.tenant == tenant and row.kind in self._kinds:
            return alias
        found: list[str] = []
        if name == LATEST or _BEGINNING.fullmatch(name):
            wanted = JobFilter(begins="" if name == LATEST else name)
            most = 1 if name == LATEST else _MAX_CANDIDATES
            found = self._record.page(list(self._kinds), wanted, tenant, offset=0, limit=most)
        job_id = only_one(name, [f"operations/{one}" for one in found], "operations", "name")
        if job_id is None:
            raise NotFound(f"no operation is named operations/{name}")
        return job_id.removeprefix("operations/")

    def page(self, offset: int, limit: int, wanted: JobFilter, tenant: str | None) -> list[Job]:
        """Jobs without their results, newest first; those of a newer release are left out."""
        ids = self._record.page(list(self._kinds), wanted, tenant, offset=offset, limit=limit)
        rows = self._record.rows(ids) if ids else {}
        return self._jobs([rows[job_id] for job_id in ids if job_id in rows])

    def _jobs(self, rows: Collection[Row]) -> list[Job]:
        counted = [
            row.job_id
            for row in rows
            if row.attempts
            and row.state is not JobState.SUCCEEDED
            and self._running.progress(row.job_id) is None
        ]
        recorded = self._record.steps(counted)
        jobs: list[Job] = []
        for row in rows:
            kind = self._kinds[row.kind]
            try:
                spec = from_plain(kind.spec_type, row.recorded)
            except InvalidArgument:  # written by a newer release
                continue
            done = recorded.get(row.job_id, 0)
            progress = self._progress(row.job_id, row.state, done, kind.count_steps(spec))
            jobs.append(Job(**vars(row), spec=spec, progress=progress))
        return jobs

    def _progress(self, job_id: str, state: JobState, recorded: int, total: int) -> Progress:
        if state is JobState.SUCCEEDED:
            return Progress.at("done", total, total)
        if state is JobState.RUNNING:
            live = self._running.progress(job_id) or self._elsewhere().get(job_id)
            if live is not None:  # another host's report may be older than the record
                done = max(live.completed, recorded)
                return Progress.at(live.phase, done, live.total, live.steps_per_second)
        phase = "waiting" if state is JobState.QUEUED else str(state)
        return Progress.at(phase, recorded, total)

    def _elsewhere(self) -> dict[str, Progress]:
        """Progress of the jobs of every host, read at most once a second."""
        with self._lock:
            if time.monotonic() - self._reported >= REPORT_SECONDS:
                self._reports = {
                    job_id: Progress.at(**progress)
                    for host in self._hosts.read().values()
                    for job_id, progress in json.loads(host.running).items()
                }
                self._reported = time.monotonic()
            return self._reports
