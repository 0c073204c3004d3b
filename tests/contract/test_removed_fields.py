"""Law: a field that an old client still sends is refused by name; one of a newer client is not."""

from collections.abc import Iterator

import grpc
import pytest
import wire
from acpc.v1.diagnostic_service_pb2 import CertifyPoolRequest
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto
from methods import METHODS, call, path_of

NEWER = 500


def field_of(number: int, inside: bytes) -> bytes:
    """A field as it is sent: its tag, the length of what is inside, and that."""
    parts = ((number << 3) | 2, len(inside))
    sent = b"".join(bytes([part & 0x7F | 0x80, part >> 7]) for part in parts)
    return sent + inside


def removed(kind: Descriptor, within: tuple[str, ...] = ()) -> Iterator[tuple[str, bytes]]:
    """Path of each reserved field of a message and of those inside it, and a message with it."""
    declared = DescriptorProto()
    kind.CopyToProto(declared)
    numbers = [n for one in declared.reserved_range for n in range(one.start, one.end)]
    for number, name in zip(numbers, declared.reserved_name, strict=True):
        yield name, field_of(number, b"\x08\x01")
    for field in kind.fields:
        inner = field.message_type
        if inner is not None and inner.full_name not in within:
            for path, data in removed(inner, (*within, kind.full_name)):
                yield f"{field.name}.{path}", field_of(field.number, data)


CASES = {
    f"{method.name}-{path}": (at, path, data)
    for at, method in METHODS.items()
    for path, data in removed(method.input_type)
}


def test_the_contract_has_what_this_round_removed() -> None:
    found = {"CertifyPool-coverage_goal", "Plan-frame", "Plan-start.coverage_goal"}
    assert found <= CASES.keys()


@pytest.mark.parametrize("case", CASES)
def test_a_removed_field_is_refused_by_its_name(channel: grpc.Channel, case: str) -> None:
    at, path, data = CASES[case]
    refused = call(channel, at, data)
    assert refused is not None
    assert (refused.code, refused.fields) == ("INVALID_ARGUMENT", (path,))
    assert "was removed in this release; see CHANGELOG" in refused.message


def test_a_removed_field_is_found_in_a_whole_request(channel: grpc.Channel) -> None:
    pool = CertifyPoolRequest(history=wire.tensor(wire.frames(3))).SerializeToString()
    refused = call(channel, path_of("DiagnosticService.CertifyPool"), pool + field_of(14, b""))
    assert refused is not None and refused.fields == ("coverage_goal",)


@pytest.mark.parametrize("newer", [field_of(NEWER, b"x"), b"\xa3\x1f\x0a\x01\xff\xa4\x1f"])
def test_a_field_that_is_not_known_yet_is_left_alone(channel: grpc.Channel, newer: bytes) -> None:
    pair = call(
        channel, path_of("DiagnosticService.ComparePair"), wire.pair().SerializeToString() + newer
    )
    assert pair is None
    refused = call(channel, path_of("DiagnosticService.Plan"), newer)
    assert refused is not None and refused.fields != ("request",)
    assert "removed" not in refused.message
