"""Two tenants with keys on one server: neither sees, follows or ends the other's jobs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from acpc.v1 import scoring_service_pb2 as pb
from acpc_server.access import Role, create_key
from google.longrunning import operations_pb2
from job_hosts import small
from job_world import JobCaller, job, write_job_world
from waiting import GENEROUS_SECONDS
from wire import refusal

pytestmark = pytest.mark.process
NEVER = "operations/2c1f5b4e-0000-4000-8000-000000000000"
Asked = Callable[[JobCaller, str, dict[str, Any]], object]
ASKED: dict[str, Asked] = {
    "get": lambda caller, name, given: caller.operations.GetOperation(
        operations_pb2.GetOperationRequest(name=name), **given
    ),
    "cancel": lambda caller, name, given: caller.operations.CancelOperation(
        operations_pb2.CancelOperationRequest(name=name), **given
    ),
    "delete": lambda caller, name, given: caller.operations.DeleteOperation(
        operations_pb2.DeleteOperationRequest(name=name), **given
    ),
    "wait": lambda caller, name, given: caller.operations.WaitOperation(
        operations_pb2.WaitOperationRequest(name=name), **given
    ),
    "watch": lambda caller, name, given: list(
        caller.scoring.WatchOperation(pb.WatchOperationRequest(name=name), **given)
    ),
    "preview": lambda caller, name, given: caller.scoring.PreviewAnchors(
        pb.PreviewAnchorsRequest(name=name, anchors=[0]), **given
    ),
}


@dataclass(frozen=True)
class Desk:
    """A server, and what the callers of each tenant give with their calls."""

    caller: JobCaller
    ours: dict[str, Any]
    theirs: dict[str, Any]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
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
        yield Desk(JobCaller(channel), ours, theirs)
        assert server.bugs() == []


def test_a_job_is_its_tenants(desk: Desk) -> None:
    caller, ours, theirs = desk.caller, desk.ours, desk.theirs
    name = caller.scoring.ScoreCheckpoint(small("same", 1), **ours).name
    other = caller.scoring.ScoreCheckpoint(small("same", 2), **theirs).name
    assert name != other, "the same request id is free for another tenant"
    for method, ask in ASKED.items():
        found = refusal(lambda ask=ask: ask(caller, name, theirs))
        never = refusal(lambda ask=ask: ask(caller, NEVER, theirs))
        assert found.code == never.code == "NOT_FOUND", method
        assert found.message.replace(name, NEVER) == never.message, method
    listed = caller.operations.ListOperations(
        operations_pb2.ListOperationsRequest(name="operations"), **theirs
    )
    names = {operation.name for operation in listed.operations}
    assert other in names
    assert name not in names
    for ask in ("wait", "get", "watch", "preview", "delete"):
        ASKED[ask](caller, name, ours)


def test_a_full_queue_refuses_its_tenant_only(desk: Desk) -> None:
    caller, ours, theirs = desk.caller, desk.ours, desk.theirs
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
    assert ASKED["wait"](caller, mine, ours).done
    for name in names:
        ASKED["cancel"](caller, name, theirs)
