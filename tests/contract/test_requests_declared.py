"""Law: each field has a dataclass field and its range in a comment; kinds and names agree."""

import dataclasses
import inspect
import re
from importlib.resources import files
from typing import Any

import pytest
from acpc.contract import (
    GRADED,
    KINDS,
    GaussianBlur,
    SkipReason,
    about,
    bounds_of,
    did_you_mean,
    nearest,
    parse_grid,
    read_spec,
)
from acpc.contract.fields import Frozen
from acpc.contract.help import comments
from acpc.contract.messages import wire_names
from acpc.v1 import perturbation_pb2 as pb
from acpc_server.errors import InvalidArgument
from acpc_server.perturb import resolve
from declared import RECORDS as EVERY
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from wire import GRIDS

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


def test_every_kind_of_the_message_has_a_class_and_a_function() -> None:
    fields = pb.PerturbationSpec.DESCRIPTOR.oneofs_by_name["kind"].fields
    assert {field.name for field in fields} == set(KINDS)
    # What others define, and what is made of them.
    assert {"identity", "registered", "given_views", "composition"} == set(KINDS) - set(GRADED)
    for text in GRIDS:
        (first, *_) = parse_grid(text)
        entry, parameters = resolve(first)
        assert (entry.name, entry.parameters, parameters) == (first.kind, type(first), first)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_without_parameters_is_read_or_names_the_one_it_lacks(kind: str) -> None:
    message = pb.PerturbationSpec()
    getattr(message, kind).SetInParent()
    try:
        assert read_spec(message).kind == kind
    except InvalidArgument as error:
        assert error.field.startswith(f"{kind}.")


def test_an_even_kernel_is_the_next_odd_one_on_both_sides() -> None:
    sent = GaussianBlur(4)
    assert sent.severity == read_spec(sent.to_spec()).severity == 5.0


def test_the_first_of_each_grid_is_the_identity() -> None:
    first = [read_spec(parse_grid(text)[0].to_spec()) for text in GRIDS]
    mild = {spec.kind for spec in first if not spec.changes_nothing}
    assert mild == {"brightness"}  # that grid starts at the other sign


KNOWN = ["lewm", "lewm-base", "models/pldm", "tworoom.h5", "gaussian_noise", "Upper"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("lwem", ["lewm"]),
        ("LEWM", ["lewm", "lewm-base"]),
        ("pldm", ["models/pldm"]),
        ("tworooms.h5", ["tworoom.h5"]),
        ("tworoom", ["tworoom.h5"]),
        ("noise", ["gaussian_noise"]),
        ("upper", ["Upper"]),
        ("", []),
        ("something else", []),
    ],
)
def test_the_nearest_names(name: str, near: list[str]) -> None:
    assert nearest(name, KNOWN) == near


def test_it_is_a_question_or_what_else_to_say() -> None:
    assert did_you_mean("lwem", KNOWN, "no") == "did you mean 'lewm'?"
    assert did_you_mean("LEWM", KNOWN) == "did you mean 'lewm' or 'lewm-base'?"
    assert did_you_mean("x", KNOWN, "no") == "no"


def test_a_name_of_a_mebibyte_and_a_million_names_cost_little() -> None:
    looked: list[int] = []

    def names() -> object:
        for number in range(1_000_000):
            looked.append(number)
            yield f"{number:0300}"

    assert nearest("0" * 2**20, names(), 1) == [f"{0:0300}"]
    assert len(looked) == 1000
