"""Law: each field of a request has a dataclass field, and its .proto comment states its range."""

import dataclasses
import inspect
import re
from importlib.resources import files
from typing import Any

from acpc.contract import SkipReason, about, bounds_of
from acpc.contract.fields import Frozen
from acpc.contract.help import comments
from acpc.contract.messages import wire_names
from declared import RECORDS as EVERY
from google.protobuf.descriptor_pb2 import FileDescriptorSet

CONTRACT = FileDescriptorSet.FromString(files("acpc.v1").joinpath("acpc.binpb").read_bytes())
# A pool may be another message's, and the weight of a term is stated where the term is.
RECORDS = [record for record in EVERY if record.__name__ not in ("OwnPool", "DistanceTerm")]


def test_every_field_of_a_request_is_declared() -> None:
    for record in RECORDS:
        declared = set(wire_names(record).values())
        for field in record.message_type.DESCRIPTOR.fields:
            oneof = field.containing_oneof
            in_oneof = oneof is not None and oneof.name in declared
            assert field.name in declared or in_oneof, field.full_name


def test_the_comment_of_a_bounded_field_states_its_range_and_default() -> None:
    for record in RECORDS:
        for name in bounds_of(record):
            assert statement(record, name) in about(record, name), f"{record.__name__}.{name}"


def test_every_field_of_the_contract_is_documented_and_beyond_its_range() -> None:
    fields = [
        f"{message.name}.{field.name}"
        for file in CONTRACT.file
        for message in file.message_type
        for field in message.field
        if file.package == "acpc.v1"
    ]
    said = {name: re.sub(r"(Range|Length): .*", "", comments().get(name, "")) for name in fields}
    assert [name for name, text in said.items() if not text] == []


def statement(record: type[Any], name: str) -> str:
    """What the comment of a bounded field says, for example the range and default of q."""
    bounds = bounds_of(record)[name]
    (field,) = (f for f in dataclasses.fields(record) if f.name == name)
    length = f"Length: {bounds.min_length} to {bounds.max_length}"
    if bounds.max_length is not None and bounds.ge == bounds.gt:
        text = length
    elif "int" in str(field.type):
        text = f"Range: {int(bounds.ge)} to {int(bounds.le)}"
    else:
        text = f"Range: {bounds.wanted(False).removeprefix('a number in ')}"
    if bounds.max_length is not None and text != length:
        text += f". {length}"
    if isinstance(field.default, int | float):
        text += f"; default {field.default:g}"
    return text + "."


def test_the_help_of_a_record_says_where_it_is_documented() -> None:
    for record in RECORDS:
        own, told, _ = (record.__doc__ or "").partition("``acpc.contract.about(")
        assert told and (own or about(record)), record
    assert about(SkipReason) and about(SkipReason, "ONE_LABEL") == "Every anchor has its label."


def test_every_record_is_the_dataclass_that_its_base_has_made_of_it() -> None:
    """A decorator beside it would read the fields again, without their ranges."""
    below = [*Frozen.__subclasses__()]
    for cls in below:
        below += cls.__subclasses__()
        assert "@dataclass(" not in inspect.getsource(cls).partition("class ")[0], cls
