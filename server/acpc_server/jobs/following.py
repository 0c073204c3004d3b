"""Follows jobs for those who wait for their changes, with one look at the record for all."""

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import structlog

from acpc_server.errors import AcpcError
from acpc_server.jobs.kind import Job

log = structlog.get_logger("acpc.jobs")
# Pause between two looks at a job: at first, at most, and as a share of the time without a change.
FIRST_LOOK_SECONDS = 0.1
LOOK_SECONDS = 1.0
LOOK_SHARE = 0.05
# Between two looks at a job at least, however many come to follow it.
GAP_SECONDS = 0.05
# Jobs read in one look, those that have waited longest: what has ended is read with its result.
LOOK_JOBS = 50
# Changes passed on in a second: a job that many follow is looked at less often.
CHANGES_A_SECOND = 500
# Called with the job as it is now, why it cannot be read, or None when the server drains.
Changed: TypeAlias = "Callable[[Job | AcpcError | None], None]"


@dataclass(eq=False)
class Following:
    """One who follows a job, ``every`` change of it or its end: ``job`` is it as last seen."""

    changed: Changed
    every: bool
    stop: Callable[[], None] = lambda: None
    job: Job | None = None  # before the first look


@dataclass(eq=False)
class _Followed:
    """A job that is followed."""

    job: Job | None = None  # as the last look found it
    followers: set[Following] = field(default_factory=set)
    changed: float = field(default_factory=time.monotonic)
    looked: float = -math.inf
    next_look: float = math.inf

    def note(self, found: Job | AcpcError, asked: Collection[Following]) -> bool:
        """Tell those who had ``asked`` before the look, and set the next; whether all have left."""
        self.looked = now = time.monotonic()
        over = isinstance(found, AcpcError) or found.state.done
        moved = self.job is None or isinstance(found, AcpcError)
        if isinstance(found, Job):
            before, self.job = self.job or found, found
            moved |= (before.state, before.progress) != (found.state, found.progress)
        if moved:
            self.changed = now
        for one in self.followers.intersection(asked):
            first, one.job = one.job is None, self.job
            if over or first or (moved and one.every):
                one.changed(found)
        if over:
            self.followers.difference_update(asked)
        pause = min(max(FIRST_LOOK_SECONDS, LOOK_SHARE * (now - self.changed)), LOOK_SECONDS)
        fresh = any(one.job is None for one in self.followers)  # came during the look
        crowd = sum(one.every for one in self.followers) / CHANGES_A_SECOND
        self.next_look = now + (GAP_SECONDS if fresh else max(pause, crowd))
        return not self.followers


class JobFollowers:
    """Calls those who follow jobs, after one look at the record for all of them.

    ``read`` returns the jobs of some ids, or why one cannot be read; done ones with their results.
    """

    def __init__(self, read: Callable[[Collection[str]], Mapping[str, Job | AcpcError]]) -> None:
        self._read = read
        self._followed: dict[str, _Followed] = {}
        self._moved = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def follow(self, job_id: str, changed: Changed, *, every: bool = True) -> Following:
        """Call ``changed`` with the job as a look from now on finds it, and at every change.

        Without ``every``, at its end alone. It is called by a thread that serves all followers, so
        it must not wait. After an error, None or a job that is done it is not called again.
        """
        with self._moved:
            following = Following(changed, every)
            following.stop = partial(self._leave, job_id, following)
            if self._closed:
                changed(None)
                return following
            if self._thread is None:
                thread = threading.Thread(target=self._look, name="job-looks", daemon=True)
                thread.start()  # where none can be had now, the next follower tries again
                self._thread = thread
            followed = self._followed.setdefault(job_id, _Followed())
            followed.followers.add(following)
            # It may have changed since the last one; jobs to be looked at before go first.
            soon = max(time.monotonic(), followed.looked + GAP_SECONDS)
            if soon < followed.next_look:
                followed.next_look = soon
                self._moved.notify_all()
        return following

    def close(self) -> None:
        """Tell every follower, now and later, that the server drains."""
        with self._moved:
            self._closed = True
            for followed in self._followed.values():
                for one in followed.followers:
                    one.changed(None)
            self._followed.clear()
            self._moved.notify_all()

    def _leave(self, job_id: str, following: Following) -> None:
        with self._moved:
            followed = self._followed.get(job_id, _Followed())
            followed.followers.discard(following)
            if not followed.followers:
                self._followed.pop(job_id, None)

    def _look(self) -> None:
        while due := self._due():
            try:
                news = self._read(list(due))
            except AcpcError as error:
                news = dict.fromkeys(due, error)
            except Exception:  # without this thread every wait would last for ever
                log.exception("job_look_failed")
                time.sleep(FIRST_LOOK_SECONDS)
                continue
            with self._moved:
                for job_id, asked in due.items():
                    followed = self._followed.get(job_id)
                    if followed is not None and followed.note(news[job_id], asked):
                        del self._followed[job_id]

    def _due(self) -> dict[str, list[Following]]:
        """Wait for jobs to look at; return who follows each. Empty when closed."""
        with self._moved:
            while not self._closed:
                now = time.monotonic()
                line = sorted(self._followed.items(), key=lambda one: one[1].next_look)[:LOOK_JOBS]
                if due := {i: list(one.followers) for i, one in line if one.next_look <= now}:
                    return due
                self._moved.wait(line[0][1].next_look - now if line else None)
            return {}
