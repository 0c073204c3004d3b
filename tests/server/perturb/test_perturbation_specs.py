"""Specifications: bounds, canonical form, severity."""

import hashlib
from collections.abc import Mapping
from dataclasses import FrozenInstanceError

import pytest
from acpc.contract import (
    Brightness,
    ColorJitter,
    Contrast,
    DefocusBlur,
    Gamma,
    GaussianBlur,
    GaussianNoise,
    Identity,
    Jpeg,
    MotionBlur,
    Occlusion,
    Perturbation,
    RandomShift,
    Registered,
    Resize,
    Shadow,
    from_plain,
)
from acpc_server.errors import InvalidArgument
from acpc_server.perturb import is_stochastic


def read(value: Mapping[str, object]) -> Perturbation:
    return from_plain(Perturbation, value)


BAD = [
    ({}, "kind", "wanted one of identity"),
    ({"kind": "fog"}, "kind", "found 'fog', wanted one of identity, gaussian_noise"),
    ({"kind": "gaussian_noise"}, "sigma", "required"),
    (
        {"kind": "gaussian_noise", "sigma": 1.5},
        "sigma",
        "found 1.5, wanted a number in [0, 1] pixel",
    ),
    ({"kind": "gaussian_noise", "sigma": -0.1}, "sigma", "found -0.1"),
    ({"kind": "gaussian_noise", "sigma": float("nan")}, "sigma", "found nan"),
    ({"kind": "gaussian_noise", "sigma": "0.1"}, "sigma", "found '0.1', wanted float"),
    ({"kind": "gaussian_noise", "sigma": 0.1, "mean": 0}, "mean", "not permitted; wanted sigma"),
    ({"kind": "gaussian_blur", "kernel_size": 0}, "kernel_size", "found 0, wanted a whole number"),
    ({"kind": "gaussian_blur", "kernel_size": 4.0}, "kernel_size", "found 4.0, wanted int"),
    ({"kind": "gaussian_blur", "kernel_size": 10**9}, "kernel_size", "found 1000000000"),
    ({"kind": "resize", "scale": 0.0}, "scale", "wanted a number in (0, 1]"),
    ({"kind": "resize", "scale": 1.01}, "scale", "found 1.01"),
    ({"kind": "brightness"}, "change", "required"),
    ({"kind": "brightness", "change": 1.1}, "change", "found 1.1, wanted a number in [-1, 1]"),
    ({"kind": "contrast", "change": -1.1}, "change", "found -1.1"),
    ({"kind": "color_jitter", "strength": -0.1}, "strength", "found -0.1"),
    ({"kind": "color_jitter", "strength": 0.1, "hue": 0.1}, "hue", "not permitted"),
    ({"kind": "jpeg", "quality": 0}, "quality", "from 1 to 100"),
    ({"kind": "jpeg", "quality": 101}, "quality", "from 1 to 100"),
    ({"kind": "jpeg", "quality": 50.0}, "quality", "found 50.0, wanted int"),
    ({"kind": "occlusion", "size": float("inf")}, "size", "found inf"),
    ({"kind": "random_shift", "pixels": 4096}, "pixels", "found 4096"),
    ({"kind": "defocus_blur", "radius": 32.5}, "radius", "found 32.5"),
    ({"kind": "motion_blur", "length": -1}, "length", "found -1"),
    (
        {"kind": "motion_blur", "length": 1, "angle": 180},
        "angle",
        "found 180.0, wanted a number in [0, 180) degrees",
    ),
    ({"kind": "shadow", "strength": 1.5}, "strength", "found 1.5"),
    ({"kind": "shadow", "strength": 1, "softness": -0.1}, "softness", "found -0.1"),
    ({"kind": "gamma", "exponent": 0.0}, "exponent", "wanted a number in [0.1, 10]"),
    ({"kind": "registered", "name": ""}, "name", "1 to 200 characters"),
    ({"kind": "registered", "name": "a", "parameters": {"b": "c"}}, "parameters.b", "found 'c'"),
]


@pytest.mark.parametrize(("value", "field", "words"), BAD)
def test_bad_specs_name_the_key_and_the_value(
    value: dict[str, object], field: str, words: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read(value)
    assert caught.value.field == field
    assert words in caught.value.description
    assert caught.value.below("specs[1]").field == f"specs[1].{field}"


def test_data_and_objects_are_the_same_spec() -> None:
    assert read({"kind": "resize", "scale": 0.25}) == Resize(scale=0.25)
    assert read({"kind": "identity"}) == Identity()
    given = {"kind": "registered", "name": "fog", "parameters": {"density": 0.5}}
    assert read(given) == Registered(name="fog", parameters={"density": 0.5})


def test_canonical_json_and_digest_are_frozen() -> None:
    spec = read({"sigma": 0.08, "kind": "gaussian_noise"})
    text = '{"kind":"gaussian_noise","sigma":0.08}'
    assert spec.canonical_json == text
    assert spec.digest == hashlib.sha256(text.encode()).hexdigest()
    motion = read({"kind": "motion_blur", "length": 9})
    assert motion.canonical_json == '{"angle":0.0,"kind":"motion_blur","length":9.0}'
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
    assert Brightness(change=-0.3).severity == Brightness(change=0.3).severity == 0.3
    assert Contrast(change=-0.3).severity == Contrast(change=0.3).severity == 0.3
    assert ColorJitter(strength=0.4).severity == 0.4
    assert Jpeg(quality=30).severity == 70.0
    assert Occlusion(size=0.2).severity == 0.2
    assert RandomShift(pixels=4).severity == 4.0
    assert DefocusBlur(radius=2.5).severity == 2.5
    assert MotionBlur(length=9.0, angle=30.0).severity == 9.0
    assert Shadow(strength=0.4).severity == 0.4
    assert Gamma(exponent=0.5).severity == Gamma(exponent=2).severity == 1.0
    assert Registered(name="fog", parameters={"severity": 3.0}).severity == 3.0
    assert Registered(name="fog").severity == 0.0


def test_only_what_is_random_needs_more_than_one_draw() -> None:
    random = [
        GaussianNoise(sigma=0.08), ColorJitter(strength=0.4), Occlusion(size=0.2),
        RandomShift(pixels=4), Shadow(strength=0.5),
    ]  # fmt: skip
    certain = [
        Identity(), GaussianBlur(kernel_size=3), Resize(scale=0.5), Brightness(change=0.1),
        Contrast(change=0.1), Jpeg(quality=3), DefocusBlur(radius=1.0), MotionBlur(length=3.0),
        Gamma(exponent=2.0),
    ]  # fmt: skip
    assert all(is_stochastic(spec) for spec in random)
    assert not any(is_stochastic(spec) for spec in certain)


def test_what_a_plug_in_does_is_not_known_to_be_nothing() -> None:
    assert not Registered(name="fog").changes_nothing
    assert not Registered(name="fog", parameters={"severity": 0.0}).changes_nothing


def test_specs_are_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        GaussianNoise(sigma=0.1).sigma = 0.2
