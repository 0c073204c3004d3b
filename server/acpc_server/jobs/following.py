"""Follows jobs for those who wait for their changes, with one look at the record for all."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

import structlog

from acpc_server.errors import AcpcError, NotFound
from acpc_server.jobs.kind import Job

log = structlog.get_logger("acpc.jobs")
# Pause between two looks at a job: at first, at most, and as a share of the time without a change.
FIRST_LOOK_SECONDS = 0.1
LOOK_SECONDS = 1.0
LOOK_SHARE = 0.05
# Called with the job as it is now, why it can no longer be read, or None when the server drains.
Changed: TypeAlias = "Callable[[Job | AcpcError | None], None]"


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
