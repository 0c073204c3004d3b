"""Three servers on one PostgreSQL record: nothing lost, nothing twice, whatever befalls a host."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from acpc.v1 import scoring_service_pb2 as pb
from job_hosts import Hosts, small
from job_world import JobCaller, JobWorld, job, metadata, steps_of
from postgres_server import PostgresServer
from server_process import LogLine, ServerProcess
from waiting import wait_until
from wire import refusal

pytestmark = pytest.mark.slow

ROOMS = {"dataset": "rooms.h5", "task": "tworoom"}
TERMS = {"job_lease_seconds": 2.0}


def long(request_id: str) -> pb.ScoreCheckpointRequest:
    return job(request_id, dataset={**ROOMS, "count": 95}, protocol={"draws": 30})


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture(scope="module")
def hosts(job_world: JobWorld, url: str) -> Iterator[Hosts]:
    with Hosts(job_world, url, **TERMS) as opened:
        yield opened
        assert [bug for server in opened.servers for bug in server.bugs()] == []


@pytest.fixture(scope="module")
def undisturbed(hosts: Hosts) -> bytes:
    caller = hosts.caller(hosts.servers[0])
    done = caller.finished(caller.submit(long("")).name)
    assert metadata(done).attempts == 1
    return done.response.SerializeToString()


def check_moved(hosts: Hosts, name: str, undisturbed: bytes, caller: JobCaller) -> None:
    """The job ended once, with the same bytes, and at most one step was measured twice."""
    done = caller.finished(name)
    assert done.response.SerializeToString() == undisturbed
    assert metadata(done).attempts == 2
    steps = Counter(line["step"] for _, line in hosts.lines("job_step", name))
    assert sorted(steps) == list(range(1, steps_of(long("")) + 1)), "every step is measured"
    assert sum(steps.values()) - len(steps) <= 1, "only the step that was hit is repeated"
    ends = [line["end"] for _, line in hosts.lines("job_ended", name)]
    assert ends.count("succeeded") == 1


def names(log: list[LogLine]) -> list[str]:
    return [line["executor_id"] for line in log if line["event"] == "jobs_open"]


def test_a_host_killed_for_good_is_taken_over(hosts: Hosts, undisturbed: bytes) -> None:
    name = hosts.caller(hosts.servers[0]).submit(long("killed")).name
    victim = hosts.runner(name, 3)
    survivors = hosts.others(victim)
    seen = [len(survivor.log()) for survivor in survivors]
    victim.kill()
    check_moved(hosts, name, undisturbed, hosts.caller(survivors[0]))
    fresh = [s.log()[lines:] for s, lines in zip(survivors, seen, strict=True)]
    gone = [line for log in fresh for line in log if line["event"] == "host_gone"]
    before = victim.log()
    assert {line["executor_id"] for line in gone} == set(names(before))
    victim.start()
    assert not [line for line in victim.log() if line["event"] == "job_started"]
    assert names(before) != names(victim.log()), "a process has a name of its own"


def test_a_paused_host_loses_its_job_and_does_no_harm(hosts: Hosts, undisturbed: bytes) -> None:
    name = hosts.caller(hosts.servers[0]).submit(long("paused")).name
    victim = hosts.runner(name, 3)
    awake = hosts.caller(hosts.others(victim)[0])
    os.kill(victim.pid, signal.SIGSTOP)
    try:
        assert awake.finished(name).done
    finally:
        os.kill(victim.pid, signal.SIGCONT)
    victim.wait_for_log(lambda line: line["event"] == "lease_lost")
    ended = victim.wait_for_log(
        lambda line: line["event"] == "job_ended" and line["job"] == name.split("/")[1]
    )
    assert ended["end"] == "withdrawn"
    check_moved(hosts, name, undisturbed, awake)
    assert hosts.caller(victim).get(name) == awake.get(name)


def reported_away(server: ServerProcess) -> bool:
    return "\nacpc_job_record_away 1.0\n" in server.metrics()


def test_an_outage_of_the_database_holds_jobs_up_and_costs_nobody_its_lease(
    hosts: Hosts, postgres: PostgresServer, undisturbed: bytes
) -> None:
    caller = hosts.caller(hosts.servers[0])
    name = caller.submit(long("outage")).name
    hosts.runner(name, 3)
    postgres.stop()
    try:
        time.sleep(2 * TERMS["job_lease_seconds"])  # longer than a lease lasts
        for call in (caller.get, caller.cancel, lambda _: caller.submit(small("", 0))):
            away = refusal(lambda call=call: call(name))
            assert (away.code, away.reason) == ("UNAVAILABLE", "JOB_RECORD_AWAY")
            assert away.retry_after
        assert all(reported_away(server) for server in hosts.servers)
    finally:
        postgres.start()
    wait_until(lambda: refusal(lambda: caller.get(name)) is None, "the database is back")
    wait_until(lambda: not any(reported_away(server) for server in hosts.servers))
    done = caller.finished(name)
    assert done.response.SerializeToString() == undisturbed
    assert metadata(done).attempts == 1
    assert len(hosts.lines("job_started", name)) == 1


def test_a_request_id_is_one_job_on_all_hosts(hosts: Hosts) -> None:
    callers = [hosts.caller(server) for server in hosts.servers]
    together = threading.Barrier(len(callers))

    def submit(caller: JobCaller) -> str:
        together.wait()
        return str(caller.submit(small("once", 0)).name)

    with ThreadPoolExecutor() as pool:
        names = set(pool.map(submit, callers))
    assert len(names) == 1
    for caller in callers:
        other = refusal(lambda caller=caller: caller.submit(small("once", 1)))
        assert other.reason == "REQUEST_ID_REUSED"


def test_a_folder_that_is_in_use_is_refused(hosts: Hosts, job_world: JobWorld, url: str) -> None:
    server = job_world.server("state-0", jobs_url=url, **TERMS)
    with pytest.raises(RuntimeError, match="another server"):
        server.start()
    assert server.wait() == 1
    assert "--state-dir" in str(server.log()[-1]["event"])
    hosts.caller(hosts.servers[0]).submit(small("still", 0))
