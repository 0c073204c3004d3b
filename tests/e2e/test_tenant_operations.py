"""Two tenants with keys on one server: one that fills its queue leaves the other's alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from acpc_server.access import Role, create_key
from google.longrunning import operations_pb2
from job_hosts import small
from job_world import JobCaller, job, write_job_world
from waiting import GENEROUS_SECONDS
from wire import refusal

pytestmark = pytest.mark.process


@dataclass(frozen=True)
class TwoTenants:
    """A server, and what the callers of each tenant give with their calls."""

    caller: JobCaller
    ours: dict[str, Any]
    theirs: dict[str, Any]


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoTenants]:
    world = write_job_world(tmp_path_factory.mktemp("tenants"))
    keys_file = world.root / "keys.json"

    def given(tenant: str) -> dict[str, Any]:
        roles = frozenset(Role)
        key = create_key(keys_file, principal=tenant, tenant=tenant, roles=roles, expires=None)
        return {"metadata": [("authorization", f"Bearer {key}")], "timeout": GENEROUS_SECONDS}

    ours, theirs = given("victim"), given("adversary")
    with (
        world.server("state", keys_file=keys_file, max_queued_jobs_per_tenant=3) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        yield TwoTenants(JobCaller(channel), ours, theirs)
        assert server.bugs() == []


def test_a_full_queue_refuses_its_tenant_only(tenants: TwoTenants) -> None:
    caller, ours, theirs = tenants.caller, tenants.ours, tenants.theirs
    names: list[str] = []

    def fill() -> None:
        for seed in range(50):
            request = job(f"{seed}", protocol={"draws": 5, "seed": seed})
            names.append(caller.scoring.ScoreCheckpoint(request, **theirs).name)

    refused = refusal(fill)
    assert (refused.code, refused.reason) == ("RESOURCE_EXHAUSTED", "TOO_MANY_JOBS")
    assert refused.retry_after
    again = caller.scoring.ScoreCheckpoint(job("0", protocol={"draws": 5, "seed": 0}), **theirs)
    assert again.name == names[0]
    mine = caller.scoring.ScoreCheckpoint(small("mine", 3), **ours).name
    waited = operations_pb2.WaitOperationRequest(name=mine)
    assert caller.operations.WaitOperation(waited, **ours).done
    for name in names:
        cancelled = operations_pb2.CancelOperationRequest(name=name)
        caller.operations.CancelOperation(cancelled, **theirs)
