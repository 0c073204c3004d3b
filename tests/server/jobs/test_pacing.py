"""How long the threads of the job queues rest."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from acpc_server.jobs import JobState, pacing
from job_desk import SHORT, Desk, ended
from waiting import GENEROUS_SECONDS, wait_until

NEVER = 100 * GENEROUS_SECONDS


@pytest.mark.parametrize("news", [pacing.Pace.queued, pacing.Pace.freed, pacing.Pace.close])
def test_news_end_a_rest(
    monkeypatch: pytest.MonkeyPatch, news: Callable[[pacing.Pace], None]
) -> None:
    monkeypatch.setattr(pacing, "QUEUE_SECONDS", NEVER)
    pace = pacing.Pace()
    ended = threading.Event()

    def rest() -> None:
        pace.rest()
        ended.set()

    threading.Thread(target=rest, daemon=True).start()

    def told() -> bool:  # again and again: the thread may not have come to rest yet
        news(pace)
        return ended.is_set()

    wait_until(told)


def test_a_place_that_gets_free_is_looked_for_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pacing, "QUEUE_SECONDS", NEVER)
    monkeypatch.setattr(pacing, "FREE_SECONDS", NEVER)
    pace = pacing.Pace()
    pace.freed()
    pace.rest()
    pace.rest()


def test_nobody_rests_at_the_end() -> None:
    pace = pacing.Pace()
    pace.close()
    pace.rest()


def test_the_lease_alone_looks_at_the_record_of_a_server_that_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the test that DBOS still has the private names by which its threads are kept at rest."""
    monkeypatch.setattr(pacing, "IDLE_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(pacing, "IDLE_QUEUE_SECONDS", NEVER)
    # As for a job that another server accepts.
    monkeypatch.setattr(pacing.Pace, "queued", lambda _: None)
    asked: deque[str] = deque(maxlen=100)

    def note(*_: object) -> None:
        thread = threading.current_thread().name
        if "dynamic_scheduler_loop" not in thread:  # once a second at first, twice a minute then
            asked.append(thread)

    desk = Desk(tmp_path)
    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        service = desk.started()
        wait_until(lambda: len(asked) == asked.maxlen and {*asked} == {"acpc-lease"})
        job = service.submit(SHORT, "from elsewhere")
        assert ended(service, job.job_id).state is JobState.SUCCEEDED, "the lease wakes the queue"
    finally:
        desk.close()
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
