"""Health, reflection, generated code, and what every answer, every error and a stream carries."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import acpc
import grpc
import pytest
import wire
from acpc.v1 import checkpoint_service_pb2, diagnostic_service_pb2
from acpc.v1.checkpoint_service_pb2 import LoadCheckpointRequest
from acpc.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from acpc.v1.diagnostic_service_pb2 import ComparePairsRequest
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from acpc.v1.scoring_service_pb2_grpc import ScoringServiceStub
from acpc_server.rpc import reflection_versions
from google.longrunning import operations_pb2
from google.longrunning.operations_pb2_grpc import OperationsStub
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from methods import SERVICES
from served_world import ServedWorld
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS

SERVING = health_pb2.HealthCheckResponse.SERVING
PROTO = Path(acpc.__file__).parents[1]


@pytest.mark.parametrize("service", ["", *SERVICES])
def test_health_by_name(channel: grpc.Channel, service: str) -> None:
    stub = HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service=service)
    assert stub.Check(request, timeout=GENEROUS_SECONDS).status == SERVING
    stream = stub.Watch(request, timeout=GENEROUS_SECONDS)
    assert next(stream).status == SERVING
    stream.cancel()


def test_health_of_an_unknown_service(channel: grpc.Channel) -> None:
    """Check refuses it; Watch says so and goes on, as the health protocol asks."""
    stub = HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service="acpc.v1.Nothing")
    refused = wire.refusal(lambda: stub.Check(request, timeout=GENEROUS_SECONDS))
    assert refused.code == "NOT_FOUND"
    stream = stub.Watch(request, timeout=GENEROUS_SECONDS)
    assert next(stream).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    stream.cancel()


def test_health_ends_before_the_server_does(world: ServedWorld, tmp_path: Path) -> None:
    """A load balancer that watches hears NOT_SERVING while open calls still finish."""
    asked = health_pb2.HealthCheckRequest()
    with world.server(tmp_path / "state", drain_seconds=1) as server:
        with grpc.insecure_channel(server.address) as channel:
            stream = HealthStub(channel).Watch(asked, timeout=GENEROUS_SECONDS)
            assert next(stream).status == SERVING
            assert server.terminate() == 0
            assert next(stream).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert [line["event"] for line in server.log()][-1] == "stopped"


def test_both_versions_of_reflection_describe_the_contract(channel: grpc.Channel) -> None:
    """grpcurl, buf curl and grpcui ask v1 first; each version knows itself too."""
    for file in reflection_versions():
        (service,) = file.services_by_name.values()
        (method,) = service.methods
        call = channel.stream_stream(
            f"/{service.full_name}/{method.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        question = GetMessageClass(method.input_type)
        for symbol in ("acpc.v1.DiagnosticService", service.full_name):
            (answer,) = call(iter([question(file_containing_symbol=symbol)]))
            assert answer.file_descriptor_response.file_descriptor_proto, answer


def test_request_ids_are_echoed(channel: grpc.Channel, server: ServerProcess) -> None:
    """The message's id wins, then the header's; without either the server makes one and logs it."""
    stub = DiagnosticServiceStub(channel)
    header = (("x-request-id", "from-header"),)
    answer = stub.ComparePair(wire.pair(request_id="from-message"), metadata=header)
    assert answer.request_id == "from-message"
    assert stub.ComparePair(wire.pair(), metadata=header).request_id == "from-header"
    made = stub.ComparePair(wire.pair()).request_id
    for identity in ("from-message", "from-header", made):
        line = server.wait_for_log(lambda line, i=identity: line.get("request_id") == i)
        assert (line["event"], line["method"], line["code"]) == ("rpc", "ComparePair", "OK")


@pytest.mark.parametrize(
    ("field", "header", "wanted"),
    [("mine", "theirs", "mine"), ("", "theirs", "theirs"), ("", "x" * 500, "x" * 128)],
)
def test_errors_name_the_request(
    channel: grpc.Channel, field: str, header: str, wanted: str
) -> None:
    stub = CheckpointServiceStub(channel)
    request = checkpoint_service_pb2.LoadCheckpointRequest(request_id=field)
    metadata = (("x-request-id", header),)
    refused = wire.refusal(lambda: stub.LoadCheckpoint(request, metadata=metadata))
    assert refused.request_id == wanted
    assert (refused.reason, refused.domain) == ("INVALID_FIELD", "acpc.v1")
    assert refused.fields == ("checkpoint.name",)


def test_every_answer_has_its_receipt_and_times(channel: grpc.Channel) -> None:
    """Equal questions have equal receipts; each part of the question moves its own digest."""
    stub = DiagnosticServiceStub(channel)

    def ask(**changed: object) -> diagnostic_service_pb2.ComparePairResponse:
        return stub.ComparePair(wire.pair(**changed), timeout=GENEROUS_SECONDS)

    first = ask()
    assert first.receipt == ask(request_id="other").receipt
    moved = {
        "checkpoint_digest": {"checkpoint": wire.checkpoint("pldm")},
        "anchors_digest": {"history": wire.tensor(wire.frames(3, seed=5))},
        "perturbation_digest": {"perturbations": wire.several(seed=1)},
        "parameters_digest": {"weights": [0.1, 0.2, 0.3, 0.4]},
        "numeric_mode": {"numeric_mode": 3},
    }
    for name, change in moved.items():
        receipt = ask(**change).receipt
        differs = {
            field.name
            for field in receipt.DESCRIPTOR.fields
            if getattr(receipt, field.name) != getattr(first.receipt, field.name)
        }
        assert differs - {"parameters", "model_digest"} == {name}
        assert ("model_digest" in differs) == (name == "checkpoint_digest")
        assert ("parameters" in differs) == (name == "parameters_digest")
    assert len(first.receipt.checkpoint_digest) == len(first.receipt.anchors_digest) == 64
    assert first.receipt.code_version
    assert first.receipt.device == "cpu"
    timing = first.timing
    assert timing.queue.ToNanoseconds() >= 0
    assert 0 < timing.compute.ToNanoseconds() <= timing.total.ToNanoseconds()


def test_a_submission_is_idempotent_by_its_own_id(channel: grpc.Channel) -> None:
    """A header is no id; tests/e2e/test_job_operations.py has the ids of messages."""
    stub, header = ScoringServiceStub(channel), (("x-request-id", "trace"),)
    names = {stub.ScoreCheckpoint(wire.score(), metadata=header).name for _ in range(2)}
    assert len(names) == 2
    for name in names:
        asked = operations_pb2.WaitOperationRequest(name=name)
        assert OperationsStub(channel).WaitOperation(asked, timeout=GENEROUS_SECONDS).done


def test_digests_pin_a_checkpoint(channel: grpc.Channel) -> None:
    stub = CheckpointServiceStub(channel)
    request = checkpoint_service_pb2.LoadCheckpointRequest(checkpoint=wire.checkpoint())
    digest = stub.LoadCheckpoint(request, timeout=GENEROUS_SECONDS).checkpoint.model.digest
    pinned = wire.pair(checkpoint=wire.checkpoint(digest=digest))
    answer = DiagnosticServiceStub(channel).ComparePair(pinned, timeout=GENEROUS_SECONDS)
    assert answer.receipt.checkpoint_digest == digest


LIMIT = 20.0
# The same program with the limit of one pair cut from minutes to seconds.
PROGRAM = f"""
from acpc_server.cli import main
from acpc_server.rpc import diagnostic
diagnostic.MAX_REQUEST_SECONDS = {LIMIT}
main()
"""


@pytest.mark.nightly  # it waits for most of a minute; limits: tests/server/scheduling
def test_a_stream_outlives_the_limit_of_a_pair(world: ServedWorld, tmp_path: Path) -> None:
    server = world.server(tmp_path / "state")
    server.command[:1] = [sys.executable, "-c", PROGRAM]
    pair = ComparePairsRequest(pair=wire.pair())

    def slowly() -> Iterator[ComparePairsRequest]:
        yield pair
        for _ in range(2):
            time.sleep(0.7 * LIMIT)
            yield pair

    with server, grpc.insecure_channel(server.address) as channel:
        load = LoadCheckpointRequest(checkpoint=wire.checkpoint())
        CheckpointServiceStub(channel).LoadCheckpoint(load)
        answers = list(DiagnosticServiceStub(channel).ComparePairs(slowly()))
    assert [len(answer.response.results) for answer in answers] == [1, 1, 1]
