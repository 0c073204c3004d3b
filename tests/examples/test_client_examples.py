"""What the examples in other languages name is in the contract."""

import re
from collections.abc import Iterator
from pathlib import Path

import acpc
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet

ROOT = Path(acpc.__file__).parents[2]
CLIENTS = ROOT / "examples" / "clients"
CONTRACT = FileDescriptorSet.FromString((ROOT / "proto/acpc/v1/acpc.binpb").read_bytes())
METHODS = {
    service.name: {method.name for method in service.method}
    for file in CONTRACT.file
    for service in file.service
}


def messages() -> Iterator[DescriptorProto]:
    for file in CONTRACT.file:
        yield from file.message_type


FIELDS = {field.name for message in messages() for field in message.field}
VALUES = {
    value.name for file in CONTRACT.file for enum in file.enum_type for value in enum.value
} | {value.name for message in messages() for enum in message.enum_type for value in enum.value}
TYPES = {message.name for message in messages()} | {*METHODS}
# Of Node's and gRPC's own.
FOREIGN = {"type_url"}


@pytest.mark.parametrize("name", ["compare.mjs", "score.mjs"])
def test_node_asks_what_is_served(name: str) -> None:
    text = re.sub(r"//.*", "", (CLIENTS / "node" / name).read_text())
    services = set(re.findall(r'connect\("(\w+)"\)', text))
    methods = set(re.findall(r'"([A-Z][a-z]\w+)", \{', text))
    assert services
    assert services <= set(METHODS)
    assert methods
    assert methods <= set().union(*(METHODS[service] for service in services))
    assert set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", text)) <= FIELDS | FOREIGN
    assert set(re.findall(r'"([A-Z]+_[A-Z0-9_]+)"', text)) <= VALUES


def test_cpp_asks_what_is_served() -> None:
    text = re.sub(r"//.*", "", (CLIENTS / "cpp" / "plan.cpp").read_text())
    named = set(re.findall(r"acpc::v1::(\w+)", text))
    assert named
    assert named <= TYPES | VALUES | {"Dtype"}
    fields = set(re.findall(r"\b(?:set|add|mutable)_(\w+)\(", text))
    assert len(fields) > 10
    assert fields <= FIELDS
    assert set(re.findall(r"stub->(\w+)\(", text)) <= METHODS["DiagnosticService"]
