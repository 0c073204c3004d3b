"""Law: beside an adversary with a key, another tenant's calls succeed and its job is done."""

import json
import subprocess
import sys
from pathlib import Path

import grpc
import processes
import pytest
import wire
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from google.longrunning import operations_pb2
from google.longrunning.operations_pb2_grpc import OperationsStub
from job_world import JobCaller
from served_world import write_world
from tenants import make_tenants
from waiting import GENEROUS_SECONDS, wait_until

ADVERSARY = Path(__file__).with_name("adversary.py")
HOLDS = {"connections": 60, "waits": 60, "streams": 40, "jobs": 150}
PAIRS = 30


@pytest.mark.slow
def test_another_tenant_is_served(tmp_path: Path) -> None:
    world, tenants = write_world(tmp_path), make_tenants(tmp_path)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    given = {"metadata": tenants.metadata("victim"), "timeout": GENEROUS_SECONDS}
    with world.server(keys_file=tenants.keys_file) as server:
        command = [sys.executable, ADVERSARY, server.address, "--key", tenants.keys["adversary"]]
        for name, count in HOLDS.items():
            command += [f"--{name}", str(count)]
        with (
            processes.running(command, **pipes) as adversary,
            grpc.insecure_channel(server.address) as channel,
        ):
            held = json.loads(adversary.stdout.readline())
            assert held["job OK"] > 0
            for seed in range(PAIRS):
                views = wire.several(seed=seed)
                DiagnosticServiceStub(channel).ComparePair(wire.pair(perturbations=views), **given)
            name = JobCaller(channel).scoring.ScoreCheckpoint(wire.score(), **given).name
            wanted = operations_pb2.WaitOperationRequest(name=name)
            operation = OperationsStub(channel).WaitOperation(wanted, **given)
            adversary.stdin.close()
            adversary.wait(GENEROUS_SECONDS)
            assert operation.WhichOneof("result") == "response", operation
            # The adversary submitted long before: its jobs are not done.
            theirs = {"metadata": tenants.metadata("adversary"), "timeout": GENEROUS_SECONDS}
            queued = operations_pb2.ListOperationsRequest(filter="state=queued")
            listed: list[operations_pb2.Operation] = []

            def is_listed() -> bool:  # its last calls may hold its share of the threads yet
                try:
                    listed.extend(
                        OperationsStub(channel).ListOperations(queued, **theirs).operations
                    )
                except grpc.RpcError as refused:
                    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, refused
                    return False
                return True

            wait_until(is_listed, "the adversary's share of the threads is never free")
            assert listed
        assert server.bugs() == []
