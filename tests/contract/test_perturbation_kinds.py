"""Contract and server agree on every kind: its name, parameters, severity and function."""

from __future__ import annotations

import pytest
from acpc.contract import KINDS, GaussianBlur, parse_grid, read_spec
from acpc.v1 import perturbation_pb2 as pb
from acpc_server.errors import InvalidArgument
from acpc_server.perturb import resolve

GRIDS = [
    "identity", "gaussian_noise:0..0.08/5", "gaussian_blur:1,5,15", "resize:1,0.5,0.25",
    "brightness:-0.3,0,0.3", "contrast:-0.3,0,0.3", "color_jitter:0..1/3", "jpeg:100,95,10",
    "occlusion:0..0.5/3", "random_shift:0,4,8", "defocus_blur:0..4/3", "motion_blur:0,5,9@30",
    "shadow:0,0.5,1@0.1", "gamma:1,1.5,0.5", "saturation:-1,0,0.5", "cutout:0,0.1,0.3@8",
    "distractor:0..0.4/3@0.2", "background:0,0.5,1@c4d0d8@0.2", "random_convolution:0,0.5,1",
    "zoom:0,0.1,0.3", "knocked_camera:0,4,8@45", "haze:0,0.4,0.8", "salt_and_pepper:0,0.01,0.1",
    "stutter:0,0.3,0.6",
]  # fmt: skip


def test_every_kind_of_the_message_has_a_class_and_a_function() -> None:
    fields = pb.PerturbationSpec.DESCRIPTOR.oneofs_by_name["kind"].fields
    assert {field.name for field in fields} == set(KINDS)
    own = {
        "registered",
        "given_views",
        "composition",
    }  # what others define, and what is made of them
    assert {text.partition(":")[0] for text in GRIDS} == set(KINDS) - own
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


@pytest.mark.parametrize("text", GRIDS)
def test_what_is_typed_arrives(text: str) -> None:
    for sent in parse_grid(text):
        read = read_spec(sent.to_spec())
        assert (read.kind, read.severity) == (sent.kind, sent.severity)
        assert read.to_spec() == sent.to_spec()
        assert parse_grid(str(sent)) == [sent]


def test_an_even_kernel_is_the_next_odd_one_on_both_sides() -> None:
    sent = GaussianBlur(4)
    assert sent.severity == read_spec(sent.to_spec()).severity == 5.0


def test_the_first_of_each_grid_is_the_identity() -> None:
    first = [read_spec(parse_grid(text)[0].to_spec()) for text in GRIDS]
    mild = {spec.kind for spec in first if not spec.changes_nothing}
    assert mild == {"brightness", "contrast", "saturation"}  # their grids start at the other sign
