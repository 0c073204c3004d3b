"""How DBOS waits for a record that is away."""

import threading

import pytest
import sqlalchemy as sa
from acpc_server.jobs import runner
from acpc_server.jobs.record import connection_url
from postgres_server import PostgresServer
from structlog.testing import capture_logs
from waiting import wait_until

pytestmark = pytest.mark.process
TRIES = 9
"""With DBOS's own rests these take minutes."""


def test_a_connection_is_made_soon_after_a_long_absence_of_the_record(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "RETRY_SECONDS", 0.01)
    engine = runner.patient_engine(connection_url(postgres.new_database()), threading.Event())
    answers: list[object] = []

    def ask() -> None:
        with engine.connect() as connection:
            answers.append(connection.scalar(sa.text("SHOW idle_in_transaction_session_timeout")))

    ask()
    with capture_logs() as lines:
        postgres.stop()
        try:
            waiting = threading.Thread(target=ask, daemon=True)
            waiting.start()
            wait_until(lambda: len(lines) >= TRIES)
            assert waiting.is_alive()
        finally:
            postgres.start()
        wait_until(lambda: not waiting.is_alive(), "it still rests")
    assert {line["event"] for line in lines} == {"job_database_away"}
    assert answers == ["1min", "1min"]
    engine.dispose()


def test_nobody_waits_for_the_record_once_the_runner_closes() -> None:
    closing = threading.Event()
    closing.set()
    engine = runner.patient_engine(connection_url("postgresql://nobody@127.0.0.1:1/none"), closing)
    with pytest.raises(sa.exc.OperationalError):
        engine.connect()
