"""How runs wait for a record that is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import dbos
import psycopg
import pytest
from acpc_server.jobs import library
from dbos._sys_db import db_retry
from job_desk import Desk
from sqlalchemy.exc import OperationalError
from waiting import wait_until

TRIES = 9
"""With DBOS's own rests these take minutes."""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    opened = Desk(tmp_path)
    yield opened
    opened.close()


def test_a_run_goes_on_soon_after_a_long_absence_of_the_record(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "RETRY_SECONDS", 0.01)
    desk.started()
    tried: list[int] = []
    system = dbos._dbos._dbos_global_instance._sys_db

    @db_retry(sys_db=system)
    def reach() -> None:
        tried.append(len(tried))
        if len(tried) < TRIES:
            cause = psycopg.OperationalError("connection failed: nobody listens")
            raise OperationalError("SELECT 1", {}, cause)

    waiting = threading.Thread(target=reach, daemon=True)
    waiting.start()
    wait_until(lambda: not waiting.is_alive(), "it still rests")
    assert len(tried) == TRIES
