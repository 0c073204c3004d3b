"""Specifications: bounds, canonical form, severity."""

import hashlib

import pytest
from acpc_server.errors import InvalidArgument
from acpc_server.perturb import (
    GaussianBlur,
    GaussianNoise,
    Identity,
    Registered,
    Resize,
    parse_spec,
)
from pydantic import ValidationError

BAD = [
    ({}, "kind", "discriminator"),
    ({"kind": "fog"}, "kind", "'gaussian_noise'"),
    ({"kind": "gaussian_noise"}, "sigma", "required"),
    ({"kind": "gaussian_noise", "sigma": 1.5}, "sigma", "less than or equal to 1; found 1.5"),
    ({"kind": "gaussian_noise", "sigma": -0.1}, "sigma", "greater than or equal to 0"),
    ({"kind": "gaussian_noise", "sigma": float("nan")}, "sigma", "finite"),
    ({"kind": "gaussian_noise", "sigma": "0.1"}, "sigma", "valid number; found '0.1'"),
    ({"kind": "gaussian_noise", "sigma": 0.1, "mean": 0}, "mean", "not permitted"),
    ({"kind": "gaussian_blur", "kernel_size": 0}, "kernel_size", "greater than or equal to 1"),
    ({"kind": "gaussian_blur", "kernel_size": 4.0}, "kernel_size", "valid integer"),
    ({"kind": "gaussian_blur", "kernel_size": 10**9}, "kernel_size", "found 1000000000"),
    ({"kind": "resize", "scale": 0.0}, "scale", "greater than 0"),
    ({"kind": "resize", "scale": 1.01}, "scale", "less than or equal to 1"),
    ({"kind": "registered", "name": ""}, "name", "at least 1 character"),
    ({"kind": "registered", "name": "a", "parameters": {"b": "c"}}, "parameters.b", "number"),
]


@pytest.mark.parametrize(("value", "field", "words"), BAD)
def test_bad_specs_name_the_key_and_the_value(
    value: dict[str, object], field: str, words: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_spec(value)
    assert caught.value.field == field
    assert words in caught.value.description
    assert caught.value.below("specs[1]").field == f"specs[1].{field}"


def test_data_and_objects_are_the_same_spec() -> None:
    assert parse_spec({"kind": "resize", "scale": 0.25}) == Resize(scale=0.25)
    assert parse_spec({"kind": "identity"}) == Identity()
    given = {"kind": "registered", "name": "fog", "parameters": {"density": 0.5}}
    assert parse_spec(given) == Registered(name="fog", parameters={"density": 0.5})


def test_canonical_json_and_digest_are_frozen() -> None:
    spec = parse_spec({"sigma": 0.08, "kind": "gaussian_noise"})
    text = '{"kind":"gaussian_noise","sigma":0.08}'
    assert spec.canonical_json == text
    assert spec.digest == hashlib.sha256(text.encode()).hexdigest()
    fog = Registered(name="fog", parameters={"z": 1.0, "a": 2.0})
    assert fog.canonical_json == '{"kind":"registered","name":"fog","parameters":{"a":2.0,"z":1.0}}'


def test_an_even_kernel_rounds_up_and_shares_the_digest() -> None:
    assert GaussianBlur(kernel_size=14).kernel_size == 15
    assert GaussianBlur(kernel_size=14).digest == GaussianBlur(kernel_size=15).digest
    assert GaussianBlur(kernel_size=13).digest != GaussianBlur(kernel_size=15).digest


def test_severity_grows_with_strength() -> None:
    assert Identity().severity == 0.0
    assert GaussianNoise(sigma=0.08).severity == 0.08
    assert GaussianBlur(kernel_size=15).severity == 15.0
    assert Resize(scale=1.0).severity == 0.0
    assert Resize(scale=0.25).severity == 0.75
    assert Registered(name="fog", parameters={"severity": 3.0}).severity == 3.0
    assert Registered(name="fog").severity == 0.0


def test_only_noise_needs_more_than_one_draw() -> None:
    assert GaussianNoise(sigma=0.08).stochastic
    assert not any(
        spec.stochastic for spec in (Identity(), GaussianBlur(kernel_size=3), Resize(scale=0.5))
    )


def test_specs_are_immutable() -> None:
    with pytest.raises(ValidationError):
        GaussianNoise(sigma=0.1).sigma = 0.2
