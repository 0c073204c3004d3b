"""Follows jobs for calls that wait for their changes, with one look at the record for all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context

import structlog

from acpc_server.errors import AcpcError
from acpc_server.jobs import Job, JobService, is_id
from acpc_server.rpc.call import Call
from acpc_server.rpc.request import read_name

log = structlog.get_logger("acpc.jobs")
# Pause between two looks at all: after a change, doubling to the longest while there is none; and
# before a look at the jobs of those who came meanwhile.
PAUSE_SECONDS, LONGEST_SECONDS, GAP_SECONDS = 0.25, 1.0, 0.05
# Jobs read at a time: what has ended is read with its result.
LOOK_JOBS = 50


class Changes:
    """The changes of a job, for one call; ``job`` is it as last seen, None before the first look.

    Waiting for them costs no thread.
    """

    def __init__(self) -> None:
        self.job: Job | None = None
        self._news: Job | AcpcError | None = None
        self._moved = asyncio.Event()

    async def next(self) -> Job | None:
        """Return the job once it has changed again; None when the server drains.

        NotFound, FailedPrecondition and Unavailable, as when it is read.
        """
        await self._moved.wait()
        self._moved.clear()
        if isinstance(self._news, AcpcError):
            raise self._news
        return self._news

    def note(self, news: Job | AcpcError | None) -> bool:
        """Take what a look has found, or None for the end of all; whether it is new."""
        if isinstance(news, Job):
            before, self.job = self.job, news
            if before and (before.state, before.progress) == (news.state, news.progress):
                return False
        self._news = news
        self._moved.set()
        return True


class JobFollowers:
    """Those who follow jobs, on the event loop. While there are any, one coroutine looks for all.

    All jobs followed are read in turn, in a worker thread; of one that is done, with its result.
    """

    def __init__(self, jobs: JobService) -> None:
        self._jobs = jobs
        self._followed: dict[str, set[Changes]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._came = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @asynccontextmanager
    async def follow(self, name: str, call: Call) -> AsyncIterator[Changes]:
        """Follow the operation of a name, as a look from now on finds it, to its end or an error.

        NotFound, InvalidArgument: there is no such job.
        """
        job_id = read_name(name)
        if not is_id(job_id):
            job_id = await call.aside(self._jobs.find, job_id)
        changes, self._loop = Changes(), asyncio.get_running_loop()
        if self._closed:
            changes.note(None)
        else:
            self._followed.setdefault(job_id, set()).add(changes)
            self._came.set()
            if self._looking is None:
                self._looking = asyncio.create_task(self._look(), context=Context())
        try:
            yield changes
        finally:
            self._leave(job_id, {changes})

    def close(self) -> None:
        """Tell every follower, now and later, that the server drains; from any thread."""
        self._closed = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed: nobody waits
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        for changes in set[Changes]().union(*self._followed.values()):
            changes.note(None)
        self._followed.clear()
        if self._looking is not None:
            self._looking.cancel()

    def _leave(self, job_id: str, left: set[Changes]) -> None:
        followers = self._followed.get(job_id, set())
        followers -= left
        if not followers:
            self._followed.pop(job_id, None)

    async def _look(self) -> None:
        pause, due, now = PAUSE_SECONDS, 0.0, asyncio.get_running_loop().time
        while self._followed:
            self._came.clear()
            whole, moved = now() >= due, False
            # Whoever comes during a look is told of the next: the job may have changed meanwhile.
            asked = {
                job_id: set(followers)
                for job_id, followers in self._followed.items()
                if whole or any(one.job is None for one in followers)
            }
            line = [*asked]
            for first in range(0, len(line), LOOK_JOBS):
                for job_id, news in (await self._read(line[first : first + LOOK_JOBS])).items():
                    # Each of them: a list, not a generator.
                    moved |= any([one.note(news) for one in asked[job_id]])
                    if isinstance(news, AcpcError) or news.state.done:
                        self._leave(job_id, asked[job_id])
            if whole:
                pause = PAUSE_SECONDS if moved else min(2 * pause, LONGEST_SECONDS)
                due = now() + pause
            await asyncio.sleep(GAP_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._came.wait()
        self._looking = None

    async def _read(self, job_ids: Sequence[str]) -> Mapping[str, Job | AcpcError]:
        try:
            return await asyncio.to_thread(self._jobs.look, job_ids)
        except AcpcError as error:
            return dict.fromkeys(job_ids, error)
        except Exception:  # without this coroutine every wait would last for ever
            log.exception("job_look_failed")
            return {}
