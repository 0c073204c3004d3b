"""Reads jobs with their progress on whatever host they run, and follows them for those who wait."""

import json
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import structlog
from acpc.contract import from_plain

from acpc_server.errors import AcpcError, FailedPrecondition, InvalidArgument, NotFound, only_one
from acpc_server.jobs.hosts import Hosts
from acpc_server.jobs.kind import Job, JobFilter, JobKind, JobRow, JobState, Progress
from acpc_server.jobs.payloads import taken_out
from acpc_server.jobs.runs import RunningJobs

log = structlog.get_logger("acpc.jobs")
# Hosts report the progress of their jobs about once a second.
REPORT_SECONDS = 1.0
LATEST = "latest"
_FEWEST = 6  # characters of an id's beginning
_BEGINNING = re.compile(rf"[0-9a-f-]{{{_FEWEST},35}}")
_MAX_CANDIDATES = 20
# Pause between two looks at a job: at first, at most, and as a share of the time without a change.
FIRST_LOOK_SECONDS = 0.1
LOOK_SECONDS = 1.0
LOOK_SHARE = 0.05
# Called with the job as it is now, why it can no longer be read, or None when the server drains.
Changed: TypeAlias = "Callable[[Job | AcpcError | None], None]"


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

    def get(self, job_id: str) -> Job:
        """Return the job, with its result if it has one; NotFound without a job.

        FailedPrecondition: a newer release accepted it, in a form that this one cannot read.
        """
        row = self._record.get(job_id)
        if row is None or row.kind not in self._kinds:
            raise NotFound(f"no operation is named operations/{job_id}")
        for job in self._jobs([row]):
            return job
        raise FailedPrecondition(
            f"operations/{job_id} was submitted to a newer release; ask a server of that release",
            reason="NEWER_RELEASE",
        )

    def several(self, job_ids: Collection[str]) -> dict[str, Job]:
        """Return jobs without their results, those that are there and can be read."""
        return {job.job_id: job for job in self._jobs(self._record.rows(job_ids).values())}

    def find(self, name: str, alias: str) -> str:
        """Return the id of the job that a name means.

        ``name`` is ``latest``, or at least 6 characters with which the id begins; ``alias`` the id
        of the job whose request id it would be. NotFound: no such job; InvalidArgument: several.
        """
        row = self._record.get(alias)
        if row is not None and row.kind in self._kinds:
            return alias
        found: list[str] = []
        if name == LATEST or _BEGINNING.fullmatch(name):
            wanted = JobFilter(begins="" if name == LATEST else name)
            most = 1 if name == LATEST else _MAX_CANDIDATES
            found = self._record.page(list(self._kinds), wanted, offset=0, limit=most)
        job_id = only_one(name, [f"operations/{one}" for one in found], "operations", "name")
        if job_id is None and name == LATEST:
            raise NotFound("there is no operation yet")
        if job_id is None:
            short = len(name) < _FEWEST
            hint = f"; give at least {_FEWEST} characters of its id" if short else ""
            raise NotFound(f"no operation is named operations/{name}{hint}")
        return job_id.removeprefix("operations/")

    def page(self, offset: int, limit: int, wanted: JobFilter) -> list[Job]:
        """Jobs without their results, newest first; those of a newer release are left out."""
        ids = self._record.page(list(self._kinds), wanted, offset=offset, limit=limit)
        rows = self._record.rows(ids) if ids else {}
        return self._jobs([rows[job_id] for job_id in ids if job_id in rows])

    def _jobs(self, rows: Collection[JobRow]) -> list[Job]:
        begun = [row for row in rows if row.attempts and row.state is not JobState.SUCCEEDED]
        counted = [row.job_id for row in begun if not self._knows_itself(row)]
        recorded = self._record.steps(counted)
        jobs: list[Job] = []
        for row in rows:
            kind = self._kinds[row.kind]
            try:
                spec, _ = taken_out(from_plain(kind.spec_type, row.recorded))
            except InvalidArgument:  # written by a newer release
                continue
            done = recorded.get(row.job_id, 0)
            progress = self._progress(row.job_id, row.state, done, kind.count_steps(spec))
            jobs.append(Job(**vars(row), spec=spec, progress=progress))
        return jobs

    def _knows_itself(self, row: JobRow) -> bool:
        """Whether a job runs here and takes new steps: it has seen again what it did before."""
        live = self._running.progress(row.job_id)
        return live is not None and (row.attempts == 1 or live.steps_per_second is not None)

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
        """Return progress of the jobs of every host, read at most once a second."""
        with self._lock:
            if time.monotonic() - self._reported >= REPORT_SECONDS:
                self._reports = {
                    job_id: Progress.at(**progress)
                    for host in self._hosts.read().values()
                    for job_id, progress in json.loads(host.running).items()
                }
                self._reported = time.monotonic()
            return self._reports


class _FollowedJob:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.followers: list[Changed] = []
        self.changed = self.next_look = time.monotonic()

    def look_later(self, now: float) -> None:
        pause = max(FIRST_LOOK_SECONDS, LOOK_SHARE * (now - self.changed))
        self.next_look = now + min(pause, LOOK_SECONDS)

    def tell(self, news: Job | AcpcError | None) -> None:
        for changed in self.followers:
            changed(news)


class JobFollowers:
    """Calls those who follow jobs, after one look at the record for all of them.

    ``read`` returns the jobs of some ids, those that are there; done ones with their results.
    """

    def __init__(self, read: Callable[[Collection[str]], Mapping[str, Job]]) -> None:
        self._read = read
        self._followed: dict[str, _FollowedJob] = {}
        self._moved = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def follow(self, job: Job, changed: Changed) -> Callable[[], None]:
        """Call ``changed`` with the job now and at every change; return a function that stops it.

        It is called by a thread that serves all followers, so it must not wait. After an error,
        None or a job that is done it is not called again.
        """
        with self._moved:
            changed(job)
            if job.state.done:
                return lambda: None
            if self._closed:
                changed(None)
                return lambda: None
            if self._thread is None:
                thread = threading.Thread(target=self._look, name="job-looks", daemon=True)
                thread.start()  # where none can be had now, the next follower tries again
                self._thread = thread
            followed = self._followed.setdefault(job.job_id, _FollowedJob(job))
            followed.followers.append(changed)
            followed.next_look = 0.0  # it may have changed since this follower read it
            self._moved.notify_all()

        def stop() -> None:
            with self._moved:
                if changed in followed.followers:
                    followed.followers.remove(changed)
                if not followed.followers and self._followed.get(job.job_id) is followed:
                    del self._followed[job.job_id]

        return stop

    def close(self) -> None:
        """Tell every follower, now and later, that the server drains."""
        with self._moved:
            self._closed = True
            for followed in self._followed.values():
                followed.tell(None)
            self._followed.clear()
            self._moved.notify_all()

    def _look(self) -> None:
        while due := self._due():
            try:
                jobs = self._read(list(due))
            except AcpcError as error:
                news: dict[str, Job | AcpcError] = dict.fromkeys(due, error)
            except Exception:  # without this thread every wait would last for ever
                log.exception("job_look_failed")
                with self._moved:
                    for followed in due.values():
                        followed.look_later(time.monotonic())
                continue
            else:
                gone = NotFound("the job was deleted")
                news = {job_id: jobs.get(job_id, gone) for job_id in due}
            with self._moved:
                for job_id, found in news.items():
                    self._note(job_id, due[job_id], found)

    def _due(self) -> dict[str, _FollowedJob]:
        """Wait for jobs to look at and return them; empty when closed."""
        with self._moved:
            while not self._closed:
                now = time.monotonic()
                due = {i: one for i, one in self._followed.items() if one.next_look <= now}
                if due:
                    return due
                following = min((one.next_look for one in self._followed.values()), default=None)
                self._moved.wait(None if following is None else following - now)
            return {}

    def _note(self, job_id: str, followed: _FollowedJob, found: Job | AcpcError) -> None:
        now = time.monotonic()
        ended = isinstance(found, AcpcError) or found.state.done
        if isinstance(found, AcpcError) or (found.state, found.progress) != (
            followed.job.state,
            followed.job.progress,
        ):
            followed.tell(found)
            followed.changed = now
        if not isinstance(found, AcpcError):
            followed.job = found
        followed.look_later(now)
        if ended and self._followed.get(job_id) is followed:
            del self._followed[job_id]
