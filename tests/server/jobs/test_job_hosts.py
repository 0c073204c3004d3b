"""The table of hosts on both kinds of database, and the count of missed beats."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from acpc_server.errors import FailedPrecondition
from acpc_server.jobs import LeaseTerms
from acpc_server.jobs.database import Host, JobDatabase
from acpc_server.jobs.lease import Lease, Sightings
from acpc_server.jobs.running import RunningJobs
from acpc_server.jobs.state_folder import StateFolder
from acpc_server.observe import Metrics

TERMS = LeaseTerms(heartbeat=0.05, lease=1.0)
A = Host("a", "process-1", "folder-1")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.process)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JobDatabase]:
    url = f"sqlite:///{tmp_path / 'jobs.sqlite'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").new_database()
    opened = JobDatabase(url)
    opened.open()
    yield opened
    opened.close()


def test_a_place_is_taken_only_as_it_was_found(database: JobDatabase) -> None:
    assert database.enter(A, None)
    assert not database.enter(replace(A, session="late"), None), "somebody was quicker"
    found = database.hosts()["a"]
    assert found == A
    assert database.beat(A, '{"job": {}}')
    assert database.hosts()["a"] == replace(A, beat=1, running='{"job": {}}')
    successor = replace(A, session="process-2")
    assert not database.enter(successor, found), "the holder moved"
    assert database.enter(successor, database.hosts()["a"])
    assert not database.beat(A, "{}"), "a process whose place is taken does not beat in it"
    assert database.hosts() == {"a": successor}


def test_a_host_is_forgotten_only_while_it_stands_still(database: JobDatabase) -> None:
    database.enter(A, None)
    seen = database.hosts()["a"]
    database.beat(A, "{}")
    database.forget(seen)
    assert "a" in database.hosts()
    assert database.leave(A)
    assert database.hosts()["a"].session == ""
    database.forget(database.hosts()["a"])
    assert database.hosts() == {}
    assert not database.beat(A, "{}")


def test_beats_are_counted_from_the_last_that_moved() -> None:
    seen = Sightings()
    assert seen.count({"a": 1, "b": 1}) == {"a": 0, "b": 0}
    assert seen.count({"a": 1, "b": 2}) == {"a": 1, "b": 0}
    assert seen.count({"a": 1}) == {"a": 2}
    assert seen.count({"a": 1, "b": 2}) == {"a": 3, "b": 0}, "b came back"
    assert seen.count({"a": None}) == {"a": 0}, "its place has gone, which is a change"
    assert seen.count({"a": None}) == {"a": 1}


def lease(database: JobDatabase, evicted: Callable[[], None] = lambda: None) -> Lease:
    running = RunningJobs(Metrics())
    return Lease(
        database,
        running,
        terms=TERMS,
        on_queued=lambda *_: None,
        on_evicted=evicted,
    )


def test_a_name_is_free_after_its_holder_left_or_died(database: JobDatabase) -> None:
    gone = lease(database)
    gone.acquire("a", "folder-1")
    gone.leave()
    lease(database).acquire("a", "folder-2")
    lease(database).acquire("a", "folder-2")  # that folder is ours now, so its process is dead
    lease(database).acquire("a", "folder-3")  # nobody beat for the length of the lease


def test_a_name_whose_holder_beats_is_refused(database: JobDatabase) -> None:
    database.enter(A, None)
    stop = threading.Event()

    def live() -> None:
        while not stop.wait(TERMS.heartbeat):
            database.beat(A, "{}")

    beating = threading.Thread(target=live)
    beating.start()
    try:
        with pytest.raises(FailedPrecondition) as refused:
            lease(database).acquire("a", "folder-2")
    finally:
        stop.set()
        beating.join()
    assert refused.value.reason == "EXECUTOR_ID_TAKEN"
    assert "--executor-id" in refused.value.message


def test_a_state_folder_keeps_its_name_and_has_one_holder(tmp_path: Path) -> None:
    first = StateFolder(tmp_path)
    name = first.claim()
    with pytest.raises(FailedPrecondition) as refused:
        StateFolder(tmp_path).claim()
    assert refused.value.reason == "STATE_FOLDER_TAKEN"
    first.release()
    assert StateFolder(tmp_path).claim() == name
    with pytest.raises(FailedPrecondition, match="cannot use the state folder"):
        StateFolder(tmp_path / "none").claim()
