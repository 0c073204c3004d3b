"""Follows jobs for those who wait for their changes, with one look at the record for all."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
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


@dataclass(eq=False)
class _Followed:
    job: Job
    followers: list[Changed] = field(default_factory=list)
    changed: float = field(default_factory=time.monotonic)
    next_look: float = 0.0

    def note(self, found: Job | AcpcError) -> bool:
        """Pass on what has changed, and set the next look; whether the job has ended."""
        now = time.monotonic()
        state = None if isinstance(found, AcpcError) else (found.state, found.progress)
        if state != (self.job.state, self.job.progress):
            self.changed = now
            for changed in self.followers:
                changed(found)
        pause = max(FIRST_LOOK_SECONDS, LOOK_SHARE * (now - self.changed))
        self.next_look = now + min(pause, LOOK_SECONDS)
        if isinstance(found, AcpcError):
            return True
        self.job = found
        return found.state.done


class JobFollowers:
    """Calls those who follow jobs, after one look at the record for all of them.

    ``read`` returns the jobs of some ids, those that are there; done ones with their results.
    """

    def __init__(self, read: Callable[[Collection[str]], Mapping[str, Job]]) -> None:
        self._read = read
        self._followed: dict[str, _Followed] = {}
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
            if self._closed and not job.state.done:
                changed(None)
            if self._closed or job.state.done:
                return lambda: None
            if self._thread is None:
                thread = threading.Thread(target=self._look, name="job-looks", daemon=True)
                thread.start()  # where none can be had now, the next follower tries again
                self._thread = thread
            followed = self._followed.setdefault(job.job_id, _Followed(job))
            followed.followers.append(changed)
            followed.next_look = 0.0  # it may have changed since this follower read it
            self._moved.notify_all()

        def stop() -> None:
            with self._moved:
                if changed in followed.followers:
                    followed.followers.remove(changed)
                if not followed.followers:
                    self._drop(job.job_id, followed)

        return stop

    def close(self) -> None:
        """Tell every follower, now and later, that the server drains."""
        with self._moved:
            self._closed = True
            for followed in self._followed.values():
                for changed in followed.followers:
                    changed(None)
            self._followed.clear()
            self._moved.notify_all()

    def _drop(self, job_id: str, followed: _Followed) -> None:
        if self._followed.get(job_id) is followed:
            del self._followed[job_id]

    def _look(self) -> None:
        while due := self._due():
            news: dict[str, Job | AcpcError]
            try:
                gone = NotFound("the job was deleted")
                news = {**dict.fromkeys(due, gone), **self._read(list(due))}
            except AcpcError as error:
                news = dict.fromkeys(due, error)
            except Exception:  # without this thread every wait would last for ever
                log.exception("job_look_failed")
                news = {job_id: followed.job for job_id, followed in due.items()}
            with self._moved:
                for job_id, followed in due.items():
                    if followed.note(news[job_id]):
                        self._drop(job_id, followed)

    def _due(self) -> dict[str, _Followed]:
        """Wait for jobs to look at and return them; empty when closed."""
        with self._moved:
            while not self._closed:
                now = time.monotonic()
                if due := {i: one for i, one in self._followed.items() if one.next_look <= now}:
                    return due
                following = min((one.next_look for one in self._followed.values()), default=None)
                self._moved.wait(None if following is None else following - now)
            return {}
