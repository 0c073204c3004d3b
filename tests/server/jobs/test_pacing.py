"""How long the threads of the job queues rest."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from acpc_server.jobs import pacing
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
