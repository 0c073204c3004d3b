"""Law: callers see each other's jobs and sets and cannot end them."""

from collections.abc import Iterator
from pathlib import Path

import anchor_wire
import grpc
import pytest
import wire
from acpc.v1 import anchor_service_pb2 as anchors
from acpc.v1.anchor_service_pb2_grpc import AnchorServiceStub
from acpc_server.access import Role, create_key
from cases import Names, seeds
from fuzzer import prepare
from google.longrunning import operations_pb2
from google.longrunning.operations_pb2_grpc import OperationsStub
from methods import call
from served_world import write_world
from waiting import GENEROUS_SECONDS

ROLES = {"victim": Role.COMPUTE, "adversary": Role.COMPUTE, "reader": Role.READ, "root": Role.ADMIN}
Keys = dict[str, str]
Metadata = tuple[tuple[str, str], ...]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("world")


@pytest.fixture(scope="module")
def keys(folder: Path) -> Keys:
    return {name: create_key(folder / "keys.json", name, role) for name, role in ROLES.items()}


@pytest.fixture(scope="module")
def channel(folder: Path, keys: Keys) -> Iterator[grpc.Channel]:
    with (
        write_world(folder).server(keys_file=folder / "keys.json") as server,
        grpc.insecure_channel(server.address) as opened,
    ):
        yield opened
        assert server.bugs() == []


def sent(keys: Keys, name: str) -> Metadata:
    return (("authorization", f"Bearer {keys[name]}"),)


@pytest.fixture(scope="module")
def victims(channel: grpc.Channel, keys: Keys) -> Names:
    """A job that has succeeded, and an anchor set."""
    given = sent(keys, "victim")
    names = prepare(channel, given)
    wanted = operations_pb2.WaitOperationRequest(name=names.operation)
    operations = OperationsStub(channel)
    while not operations.WaitOperation(wanted, metadata=given, timeout=GENEROUS_SECONDS).done:
        pass
    return names


ENDING = [
    "/acpc.v1.AnchorService/DeleteAnchorSet",
    "/google.longrunning.Operations/CancelOperation",
    "/google.longrunning.Operations/DeleteOperation",
]


@pytest.mark.parametrize("path", ENDING)
def test_what_another_has_made_stays(
    channel: grpc.Channel, keys: Keys, victims: Names, path: str
) -> None:
    (message,) = seeds(victims)[path]
    for name, words in (("adversary", "was made by victim"), ("reader", "needs the role compute")):
        refused = call(channel, path, message.SerializeToString(), sent(keys, name))
        assert refused.code == "PERMISSION_DENIED"
        assert words in refused.message
    given = {"metadata": sent(keys, "reader"), "timeout": GENEROUS_SECONDS}
    found = operations_pb2.GetOperationRequest(name=victims.operation)
    assert OperationsStub(channel).GetOperation(found, **given).done
    listed = AnchorServiceStub(channel).ListAnchorSets(anchors.ListAnchorSetsRequest(), **given)
    assert victims.anchor_set in [one.digest for one in listed.anchor_sets]


def test_an_owner_and_an_administrator_may_end_it(
    channel: grpc.Channel, keys: Keys, victims: Names
) -> None:
    """The owner cancels its own job; an administrator deletes it, and a set of another."""
    stub = OperationsStub(channel)
    own = {"metadata": sent(keys, "adversary"), "timeout": GENEROUS_SECONDS}
    score = channel.unary_unary(
        "/acpc.v1.ScoringService/ScoreCheckpoint",
        response_deserializer=operations_pb2.Operation.FromString,
    )
    made = score(wire.score(request_id="to be deleted").SerializeToString(), **own).name
    stub.CancelOperation(operations_pb2.CancelOperationRequest(name=made), **own)
    while not stub.WaitOperation(operations_pb2.WaitOperationRequest(name=made), **own).done:
        pass
    root = {"metadata": sent(keys, "root"), "timeout": GENEROUS_SECONDS}
    stub.DeleteOperation(operations_pb2.DeleteOperationRequest(name=made), **root)
    gone = anchors.DeleteAnchorSetRequest(digest=victims.given)
    AnchorServiceStub(channel).DeleteAnchorSet(gone, **root)


def test_an_upload_is_continued_by_its_caller_alone(channel: grpc.Channel, keys: Keys) -> None:
    stub = AnchorServiceStub(channel)
    begun = [anchor_wire.header("one-name"), anchor_wire.shard(0, 4)]
    victim, adversary = (
        {"metadata": sent(keys, name), "timeout": GENEROUS_SECONDS}
        for name in ("victim", "adversary")
    )
    assert stub.UploadAnchors(iter(begun), **victim).next_offset == 4
    refused = wire.refusal(lambda: stub.UploadAnchors(iter(begun), **adversary))
    assert refused.code == "ALREADY_EXISTS"
    wanted = anchors.GetUploadRequest(request_id="one-name")
    assert stub.GetUpload(wanted, **victim).next_offset == 4
