"""Client, contract and server agree on every kind: its name, parameters and severity."""

from __future__ import annotations

from typing import get_args

import pytest
from acpc.v1 import perturbation_pb2 as pb
from acpc_client import perturbations as client
from acpc_client.severities import parse_grid
from acpc_server.perturb import AnyPerturbation
from acpc_server.rpc import codec

GRIDS = [
    "identity", "gaussian_noise:0..0.08/5", "gaussian_blur:1,5,15", "resize:1,0.5,0.25",
    "brightness:-0.3,0,0.3", "contrast:-0.3,0,0.3", "color_jitter:0..1/3", "jpeg:100,95,10",
    "occlusion:0..0.5/3", "random_shift:0,4,8", "defocus_blur:0..4/3", "motion_blur:0,5,9@30",
]  # fmt: skip


def test_the_three_know_the_same_kinds() -> None:
    contract = {field.name for field in pb.PerturbationSpec.DESCRIPTOR.oneofs[0].fields}
    union, _ = get_args(AnyPerturbation)
    assert {spec.model_fields["kind"].default for spec in get_args(union)} == contract
    assert {spec.kind for spec in get_args(client.Perturbation)} == contract
    assert {text.partition(":")[0] for text in GRIDS} == contract - {"registered"}


@pytest.mark.parametrize("text", GRIDS)
def test_what_is_typed_arrives(text: str) -> None:
    for sent in parse_grid(text):
        read = codec.read_spec(sent.to_message(), "perturbation")
        assert (read.kind, read.severity) == (sent.kind, sent.severity)
        assert codec.write_spec(read) == sent.to_message()
        assert parse_grid(str(sent)) == [sent]


def test_an_even_kernel_is_the_next_odd_one_on_both_sides() -> None:
    sent = client.GaussianBlur(4)
    assert sent.severity == codec.read_spec(sent.to_message(), "").severity == 5.0


def test_the_first_of_each_grid_is_the_identity() -> None:
    first = [codec.read_spec(parse_grid(text)[0].to_message(), "") for text in GRIDS]
    mild = {spec.kind for spec in first if not spec.changes_nothing}
    assert mild == {"brightness", "contrast"}  # their grids start at the other sign
