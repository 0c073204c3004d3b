"""The table of hosts on both kinds of database, and the count of missed beats."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from acpc_server.cli import app
from acpc_server.errors import FailedPrecondition
from acpc_server.jobs import LeaseTerms
from acpc_server.jobs.hosts import Host, Hosts, StateFolder
from acpc_server.jobs.lease import Lease, Sightings
from acpc_server.jobs.payloads import Payloads
from acpc_server.jobs.record import Record
from acpc_server.jobs.runs import JobRunner
from acpc_server.observe import Metrics
from typer.testing import CliRunner

TERMS = LeaseTerms(heartbeat=0.05, lease=1.0)
A = Host("a", "process-1", "folder-1")


# Of PostgreSQL they are process tests: pytest.mark.process, set by ``record_url``.
@pytest.fixture
def hosts(record_url: str) -> Iterator[Hosts]:
    record = Record(record_url)
    opened = Hosts(record)
    record.open()
    yield opened
    record.close()


def test_a_state_folder_whose_name_was_lost_gets_another(tmp_path: Path) -> None:
    (tmp_path / "name").touch()
    folder = StateFolder(tmp_path)
    name = folder.claim()
    folder.release()
    assert name
    assert StateFolder(tmp_path).claim() == name


def test_a_place_is_taken_only_as_it_was_found(hosts: Hosts) -> None:
    assert hosts.enter(A, None)
    assert not hosts.enter(replace(A, session="late"), None), "somebody was quicker"
    found = hosts.read()["a"]
    assert found == A
    assert hosts.beat(A, '{"job": {}}')
    assert hosts.read()["a"] == replace(A, beat=1, running='{"job": {}}')
    successor = replace(A, session="process-2")
    assert not hosts.enter(successor, found), "the holder moved"
    assert hosts.enter(successor, hosts.read()["a"])
    assert not hosts.beat(A, "{}"), "a process whose place is taken does not beat in it"
    assert hosts.read() == {"a": successor}


def test_a_host_is_forgotten_only_while_it_stands_still(hosts: Hosts) -> None:
    hosts.enter(A, None)
    seen = hosts.read()["a"]
    hosts.beat(A, "{}")
    hosts.forget(seen)
    assert "a" in hosts.read()
    assert hosts.leave(A)
    assert hosts.read()["a"].session == ""
    hosts.forget(hosts.read()["a"])
    assert hosts.read() == {}
    assert not hosts.beat(A, "{}")


@pytest.mark.parametrize("url", ["x", "postgresql://h:port/d", "nothing://h/d"])
def test_a_url_of_no_database_is_told(url: str) -> None:
    shown = CliRunner().invoke(app, ["hosts", "--jobs-url", url])
    assert isinstance(shown.exception, FailedPrecondition), shown.exception
    assert shown.exception.message.startswith("--jobs-url: no database's URL (")


def test_beats_are_counted_from_the_last_that_moved() -> None:
    seen = Sightings()
    assert seen.count({"a": 1, "b": 1}) == {"a": 0, "b": 0}
    assert seen.count({"a": 1, "b": 2}) == {"a": 1, "b": 0}
    assert seen.count({"a": 1}) == {"a": 2}
    assert seen.count({"a": 1, "b": 2}) == {"a": 3, "b": 0}, "b came back"
    assert seen.count({"a": None}) == {"a": 0}, "its place has gone, which is a change"
    assert seen.count({"a": None}) == {"a": 1}


def lease(
    hosts: Hosts, evicted: Callable[[], None] = lambda: None, terms: LeaseTerms = TERMS
) -> Lease:
    return Lease(
        hosts,
        JobRunner({}, hosts.record, Payloads(hosts.record), Metrics(), lambda _: None),
        terms=terms,
        on_queued=lambda *_: None,
        on_evicted=evicted,
    )


def test_a_name_whose_holder_beats_is_refused(hosts: Hosts) -> None:
    hosts.enter(A, None)
    stop = threading.Event()

    def live() -> None:
        while not stop.wait(TERMS.heartbeat):
            hosts.beat(A, "{}")

    beating = threading.Thread(target=live)
    beating.start()
    try:
        with pytest.raises(FailedPrecondition) as refused:
            lease(hosts).acquire("a", "folder-2")
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
