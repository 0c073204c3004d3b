"""Law: what is another tenant's is answered as what never was, whatever method asks for it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anchor_wire
import grpc
import pytest
import wire
from acpc.v1 import anchor_service_pb2 as anchors
from acpc.v1.anchor_service_pb2_grpc import AnchorServiceStub
from cases import METHODS, Names, given_seeds, seeds
from fuzzer import prepare
from google.longrunning import operations_pb2
from google.longrunning.operations_pb2_grpc import OperationsStub
from job_world import JobCaller
from served_world import write_world
from tenants import Tenants, make_tenants
from waiting import GENEROUS_SECONDS

STRANGE = Names("operations/" + "0" * 36, "0" * 64)
UPLOAD = "one-name"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("world")


@pytest.fixture(scope="module")
def tenants(folder: Path) -> Tenants:
    return make_tenants(folder)


@pytest.fixture(scope="module")
def channel(folder: Path, tenants: Tenants) -> Iterator[grpc.Channel]:
    with (
        write_world(folder).server(keys_file=tenants.keys_file) as server,
        grpc.insecure_channel(server.address) as opened,
    ):
        yield opened
        assert server.bugs() == []


@pytest.fixture(scope="module")
def victims(channel: grpc.Channel, tenants: Tenants) -> Names:
    """A job that has succeeded, and an anchor set."""
    given = tenants.metadata("victim")
    names = prepare(channel, given)
    wanted = operations_pb2.WaitOperationRequest(name=names.operation)
    operations = OperationsStub(channel)
    while not operations.WaitOperation(wanted, metadata=given, timeout=GENEROUS_SECONDS).done:
        pass
    return names


def answer(
    channel: grpc.Channel, path: str, messages: list[bytes], key: tuple[tuple[str, str], ...]
) -> tuple[str, str]:
    """Status and message of a call."""
    call = channel.stream_stream(path)(iter(messages), metadata=key, timeout=GENEROUS_SECONDS)
    with contextlib.suppress(grpc.RpcError):
        list(call)
    return call.code().name, call.details()


NAMING = [
    path
    for path, messages in seeds(STRANGE).items()
    if any(STRANGE.operation in str(m) or STRANGE.anchor_set in str(m) for m in messages)
]
BY_SET = ["/acpc.v1.ScoringService/ScoreCheckpoint", "/acpc.v1.StudyService/RunStudy"]


def naming(path: str, names: Names) -> list[bytes]:
    """A call of a method that names a job or an anchor set."""
    messages = seeds(names)[path]
    if path in BY_SET:
        messages[0].anchor_set = names.anchor_set
    return [message.SerializeToString() for message in messages]


@pytest.mark.parametrize("path", [*NAMING, *BY_SET])
def test_anothers_names_are_those_of_nothing(
    channel: grpc.Channel, tenants: Tenants, victims: Names, path: str
) -> None:
    adversary = tenants.metadata("adversary")
    seen = answer(channel, path, naming(path, victims), adversary)
    nothing = answer(channel, path, naming(path, STRANGE), adversary)
    replaced = seen[1].replace(victims.operation, STRANGE.operation)
    assert (seen[0], replaced.replace(victims.anchor_set, STRANGE.anchor_set)) == nothing
    assert seen[0] != "OK"


@pytest.mark.parametrize("path", [*BY_SET, "/acpc.v1.AnchorService/GetAnchorSet"])
def test_anothers_views_and_directions_are_those_of_nothing(
    channel: grpc.Channel, tenants: Tenants, victims: Names, path: str
) -> None:
    def seen(names: Names, tenant: str) -> tuple[str, str]:
        message: Any = given_seeds(names)[path][0]
        if path in BY_SET:
            message.checkpoint.name = "lewm"
        sent = [message.SerializeToString()]
        code, text = answer(channel, path, sent, tenants.metadata(tenant))
        return code, text.replace(names.given, "")

    assert seen(victims, "adversary") == seen(STRANGE, "adversary")
    assert seen(victims, "adversary")[0] == "NOT_FOUND"
    assert seen(victims, "victim")[0] == "OK"


def test_nothing_of_it_was_touched(channel: grpc.Channel, tenants: Tenants, victims: Names) -> None:
    given = {"metadata": tenants.metadata("victim"), "timeout": GENEROUS_SECONDS}
    wanted = operations_pb2.GetOperationRequest(name=victims.operation)
    assert OperationsStub(channel).GetOperation(wanted, **given).done
    found = AnchorServiceStub(channel).GetAnchorSet(
        anchors.GetAnchorSetRequest(digest=victims.anchor_set), **given
    )
    assert found.anchor_set.digest == victims.anchor_set


def test_lists_show_ones_own(channel: grpc.Channel, tenants: Tenants, victims: Names) -> None:
    given = {"metadata": tenants.metadata("adversary"), "timeout": GENEROUS_SECONDS}
    for text in ("", "state=succeeded", "kind=score_checkpoint AND checkpoint=lewm"):
        wanted = operations_pb2.ListOperationsRequest(filter=text)
        found = OperationsStub(channel).ListOperations(wanted, **given).operations
        assert victims.operation not in [operation.name for operation in found]
    listed = AnchorServiceStub(channel).ListAnchorSets(anchors.ListAnchorSetsRequest(), **given)
    assert victims.anchor_set not in [found.digest for found in listed.anchor_sets]


def test_request_ids_and_uploads_of_one_name_are_two(
    channel: grpc.Channel, tenants: Tenants, victims: Names
) -> None:
    """The adversary guesses the victim's request ids: it gets a job and an upload of its own."""
    adversary, victim = (
        {"metadata": tenants.metadata(name), "timeout": GENEROUS_SECONDS}
        for name in ("adversary", "victim")
    )
    submit = JobCaller(channel).scoring.ScoreCheckpoint
    own = submit(wire.score(request_id="fuzz"), **adversary).name
    assert own != victims.operation
    stub = AnchorServiceStub(channel)
    begun = [anchor_wire.header(UPLOAD), anchor_wire.shard(0, 4)]
    assert stub.UploadAnchors(iter(begun), **victim).next_offset == 4
    wanted = anchors.GetUploadRequest(request_id=UPLOAD)
    with pytest.raises(grpc.RpcError) as caught:
        stub.GetUpload(wanted, **adversary)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert stub.UploadAnchors(iter(begun[:1]), **adversary).next_offset == 0
    assert stub.GetUpload(wanted, **victim).next_offset == 4


@pytest.mark.parametrize(
    "value",
    [
        "", "Bearer", "Bearer ", "Basic {0}", "Bearer {0}x", "Bearer {0} {0}",
        "Bearer {0}, Bearer {0}", "Bearer acpc_000000000000_" + "0" * 64,
    ],
)  # fmt: skip
def test_no_method_takes_other_credentials(
    channel: grpc.Channel, tenants: Tenants, value: str
) -> None:
    given = (("authorization", value.format(tenants.keys["victim"])),) if value else ()
    for path in sorted({*METHODS} - {"/grpc.health.v1.Health/Watch"}):
        code, _ = answer(channel, path, naming(path, STRANGE), given)
        open_to_all = path.startswith("/grpc.health.v1.Health/")
        assert code == ("OK" if open_to_all else "UNAUTHENTICATED"), path


def test_two_headers_are_none(channel: grpc.Channel, tenants: Tenants) -> None:
    both = (*tenants.metadata("adversary"), *tenants.metadata("victim"))
    path = "/google.longrunning.Operations/ListOperations"
    assert answer(channel, path, [b""], both)[0] == "UNAUTHENTICATED"
    assert answer(channel, path, [b""], both[:1] * 2)[0] == "UNAUTHENTICATED"
