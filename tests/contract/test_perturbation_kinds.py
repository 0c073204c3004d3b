"""Contract and server agree on every kind: its name, parameters, severity and function."""

import pytest
from acpc.contract import GRADED, KINDS, GaussianBlur, parse_grid, read_spec
from acpc.v1 import perturbation_pb2 as pb
from acpc_server.errors import InvalidArgument
from acpc_server.perturb import resolve
from wire import GRIDS


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
