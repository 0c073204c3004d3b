"""The short form of perturbations, and what travels."""

import pytest
from acpc.v1 import perturbation_pb2 as pb
from acpc_client import GaussianBlur, GaussianNoise, Identity, Registered, Resize
from acpc_client.errors import ArgumentError
from acpc_client.perturbations import CHOICES, Perturbation, parse

SPECS = {
    "gaussian_noise:0.08": (
        GaussianNoise(0.08),
        pb.PerturbationSpec(gaussian_noise=pb.GaussianNoise(sigma=0.08)),
    ),
    "blur:15": (
        GaussianBlur(15),
        pb.PerturbationSpec(gaussian_blur=pb.GaussianBlur(kernel_size=15)),
    ),
    "resize:0.25": (Resize(0.25), pb.PerturbationSpec(resize=pb.Resize(scale=0.25))),
    "identity": (Identity(), pb.PerturbationSpec(identity=pb.Identity())),
}


@pytest.mark.parametrize(("text", "spec"), SPECS.items())
def test_short_form_value_and_message_agree(
    text: str, spec: tuple[Perturbation, pb.PerturbationSpec]
) -> None:
    value, message = spec
    assert parse(text) == value
    assert str(value) == text
    assert value.to_message() == message


def test_a_registered_perturbation_carries_its_parameters() -> None:
    message = Registered("fog", {"density": 0.5}).to_message()
    assert message.registered.name == "fog"
    assert dict(message.registered.parameters) == {"density": 0.5}


@pytest.mark.parametrize(
    "text", ["", "noise", "gaussian_noise", "gaussian_noise:x", "blur:1.5", "blur:-3", "identity:1"]
)
def test_every_error_lists_the_choices(text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse(text)
    assert all(choice in caught.value.message for choice in CHOICES)
    assert repr(text) in caught.value.message
