"""Law: bytes that are no message, and calls outside the contract, are refused and nothing more."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import wire
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from acpc.v1.tensor_pb2 import Tensor
from methods import METHODS, call
from served_world import ServedWorld
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS

MIB = 1024 * 1024
GARBAGE = {
    "truncated": wire.pair().SerializeToString()[:1000],
    "not-a-message": b"\xff" * 64,
    "deep": b"\x0b" * 5000,
    "not-utf8": b"\x0a\x04\xff\xfe\xfd\xfc\x12\x04\xff\xfe\xfd\xfc",
    "length-lies": b"\x0a\xff\xff\xff\xff\x0f",
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_bytes_that_are_no_message(channel: grpc.Channel, garbage: str) -> None:
    for path in METHODS:
        refused = call(channel, path, GARBAGE[garbage])
        assert (refused.code, refused.fields) == ("INVALID_ARGUMENT", ("request",)), path


@pytest.mark.parametrize("path", ["/acpc.v1.DiagnosticService/Guess", "/acpc.v2.X/Y", "/x"])
def test_unknown_methods(channel: grpc.Channel, path: str) -> None:
    assert call(channel, path).code == "UNIMPLEMENTED"


def test_a_compressed_message_leaves_no_line_that_is_not_json(
    world: ServedWorld, tmp_path: Path
) -> None:
    """What gRPC's C library says of callers' mistakes stays out of the log."""
    roots = world.checkpoint_root, world.dataset_root
    with ServerProcess(*roots, tmp_path / "state", fresh=True) as server:
        with grpc.insecure_channel(server.address, compression=grpc.Compression.Gzip) as channel:
            refused = wire.refusal(lambda: DiagnosticServiceStub(channel).ComparePair(wire.pair()))
        assert refused.code == "UNIMPLEMENTED"
        assert server.terminate() == 0
        assert [line for line in server.log() if "timestamp" not in line] == []


@pytest.fixture
def wide(server: ServerProcess) -> Iterator[grpc.Channel]:
    """A channel that sends whatever it is told to."""
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(server.address, options) as opened:
        yield opened


def test_a_message_above_the_limit(wide: grpc.Channel) -> None:
    """64 MiB is the server's limit; the channel lives on after a refusal."""
    stub = DiagnosticServiceStub(wide)
    for mib, code in ((63, "INVALID_ARGUMENT"), (65, "RESOURCE_EXHAUSTED")):
        request = wire.pair(history=Tensor(dtype=1, shape=[3, 28, 28, 3], data=bytes(mib * MIB)))
        refused = wire.refusal(
            lambda request=request: stub.ComparePair(request, timeout=GENEROUS_SECONDS)
        )
        assert refused.code == code
    assert len(stub.ComparePair(wire.pair(), timeout=GENEROUS_SECONDS).results) == 1


@pytest.mark.parametrize("height, width", [(1, 1), (3, 2), (8, 1), (29, 227)])
def test_frames_of_any_sensible_size(channel: grpc.Channel, height: int, width: int) -> None:
    """A frame smaller than a patch is scaled up, as training code would; it is no error."""
    history = wire.tensor(wire.frames(3, height=height, width=width))
    answer = DiagnosticServiceStub(channel).ComparePair(wire.pair(history=history))
    assert answer.results[0].acpc > 0
