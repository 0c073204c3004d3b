"""Three servers, each restarted under load: no call fails, no job is lost."""

from pathlib import Path

import pytest
from job_hosts import Hosts
from job_world import write_job_world
from postgres_server import PostgresServer
from rolling_restart import roll

TERMS = {"job_lease_seconds": 2.0}


@pytest.mark.slow
def test_servers_restarted_in_turn_fail_no_call(tmp_path: Path, postgres: PostgresServer) -> None:
    world = write_job_world(tmp_path)
    url = postgres.new_database()
    with Hosts(world, url, **TERMS, anchor_dir=tmp_path / "anchors") as hosts:
        load, away = roll(hosts, rounds=1, callers=2, calls_between=30)
        assert [bug for server in hosts.servers for bug in server.bugs()] == []
    assert not load.failures
    assert len(away) == 3
    assert all(len(found) == 1 for found in load.scores.values()), "each seed has one score"
