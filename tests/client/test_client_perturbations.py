"""Perturbations: short forms, grids, and what travels."""

from pathlib import Path

import numpy as np
import pytest
from acpc.contract import (
    CHOICES,
    Background,
    Brightness,
    Composition,
    GaussianBlur,
    GaussianNoise,
    GivenViews,
    Identity,
    Jpeg,
    MotionBlur,
    Perturbation,
    RandomShift,
    Registered,
    Shadow,
    Zoom,
    parse,
    parse_grid,
    severity_grid,
)
from acpc.contract.severities import EVERYDAY
from acpc.v1 import perturbation_pb2 as pb
from acpc_client.errors import ArgumentError

SPECS = {
    "given_views:light:0.5": (GivenViews("light:0.5"), {"given_views": {"group": "light:0.5"}}),
    "brightness:-0.3": (Brightness(-0.3), {"brightness": {"change": -0.3}}),
    "motion_blur:9": (MotionBlur(9), {"motion_blur": {"length": 9}}),
    "motion_blur:9@22.5": (MotionBlur(9, 22.5), {"motion_blur": {"length": 9, "angle": 22.5}}),
    "shadow:0.5@0": (Shadow(0.5, 0.0), {"shadow": {"strength": 0.5, "softness": 0.0}}),
    "background:1@c4d0d8": (
        Background(1, "c4d0d8"),
        {"background": {"strength": 1, "key": "c4d0d8", "tolerance": 0.1}},
    ),
    "zoom:0.1+jpeg:30": (
        Composition((Zoom(0.1), Jpeg(30))),
        {"composition": {"parts": [{"zoom": {"cut": 0.1}}, {"jpeg": {"quality": 30}}]}},
    ),
    "identity": (Identity(), {"identity": {}}),
}
"""Messages by hand; tests/contract/test_perturbation_kinds.py sends every kind."""


@pytest.mark.parametrize(("text", "spec"), SPECS.items())
def test_short_form_value_and_message_agree(
    text: str, spec: tuple[Perturbation, dict[str, dict[str, float]]]
) -> None:
    value, message = spec
    assert parse(text) == value
    assert str(value) == text
    assert value.to_spec() == pb.PerturbationSpec(**message)
    assert value.to_spec().WhichOneof("kind") == value.kind


def test_a_registered_perturbation_carries_its_parameters() -> None:
    message = Registered("fog", {"density": 0.5}).to_spec()
    assert message.registered.name == "fog"
    assert dict(message.registered.parameters) == {"density": 0.5}
    assert str(Registered("fog", {"density": 0.5})) == "fog:density=0.5"


@pytest.mark.parametrize(
    ("text", "grid"),
    [
        ("gaussian_noise:0.02,0.05", [GaussianNoise(0.02), GaussianNoise(0.05)]),
        ("gaussian_noise:0.02..0.08/4", [GaussianNoise(s) for s in (0.02, 0.04, 0.06, 0.08)]),
        ("gaussian_noise:0..1e-3/3", [GaussianNoise(s) for s in (0.0, 0.0005, 0.001)]),
        ("brightness:-0.2..0.2/2", [Brightness(-0.2), Brightness(0.2)]),
        ("blur:3..15/3", [GaussianBlur(3), GaussianBlur(9), GaussianBlur(15)]),
        ("jpeg:90..10/3", [Jpeg(90), Jpeg(50), Jpeg(10)]),
        ("motion_blur:3,9@30", [MotionBlur(3, 30), MotionBlur(9, 30)]),
        ("motion_blur:3..9/2@30", [MotionBlur(3, 30), MotionBlur(9, 30)]),
        ("identity", [Identity()]),
        ("blur:15", [GaussianBlur(15)]),
        ("everyday", [parse(text) for text in EVERYDAY]),
    ],
)
def test_grids(text: str, grid: list[Perturbation]) -> None:
    assert parse_grid(text) == grid


def test_a_grid_from_values() -> None:
    assert severity_grid("gaussian_blur", [3, 5]) == [GaussianBlur(3), GaussianBlur(5)]
    assert severity_grid("motion_blur", [3, 5], angle=90) == [MotionBlur(3, 90), MotionBlur(5, 90)]
    with pytest.raises(ArgumentError, match="kind: no shift is called 'fog'"):
        severity_grid("fog", [1])
    with pytest.raises(ArgumentError, match="angle: jpeg has no such parameter"):
        severity_grid("jpeg", [1], angle=3)
    with pytest.raises(ArgumentError, match=r"quality: found 30\.5, wanted a whole number"):
        severity_grid("jpeg", [30.5])
    with pytest.raises(ArgumentError, match="pixels: found -1"):
        RandomShift(-1)


# What is no shift, and words of the error where it says more than what was found.
BAD: dict[str, str] = dict.fromkeys([
    "", "noise", "gaussian_noise:x", "blur:1.5", "blur:-3",
    "gaussian_noise:0.1@30", "gaussian_noise:0.1..0.2", "gaussian_noise:0.1..0.2/1",
    "gaussian_noise:0.1..0.2/1000000000", "gaussian_noise:1/0..2/3", "gaussian_noise:0..nan/3",
    "cutout:0.1@1.5", "background:0.5", "background:0.5@c4d0d8@0.1@2", "background:0.5@no.npy",
    "blur:3..4/3", "motion_blur:@3", "motion_blur:9@", "registered:fog", ":", "gaussian_noise:1,",
], "") | {
    "gaussian_noise": "without its sigma, wanted gaussian_noise:SIGMA, sigma a number "
                      "in [0, 1] pixel units; for example gaussian_noise:0.08",
    "gausian_noise:0.08": "did you mean 'gaussian_noise'",
    "Blur:15": "did you mean 'blur'",
    "noise:0.1": "did you mean 'gaussian_noise'? acpc list shifts has all",
    "fog": "no shift is called 'fog'; acpc list shifts has all",
    "blur:4096": "kernel_size: found 4096, wanted a whole number from 1 to 4095",
    "identity:1": "identity has no severity",
    "blur:3..5": "gaussian_blur:FIRST..LAST/COUNT",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_every_error_quotes_the_text_and_is_about_its_kind_alone(text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse_grid(text)
    message = caught.value.message
    assert repr(text) in message and BAD[text] in message
    kinds = [choice for choice in CHOICES if choice.partition(":")[0] in message]
    assert len(kinds) <= 1 or "did you mean" in message


def test_a_plate_is_read_from_a_file_of_numpy(tmp_path: Path) -> None:
    plate = np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3)
    np.save(tmp_path / "plate.npy", plate)
    mild, strong = parse_grid(f"background:0.2,1@{tmp_path}/plate.npy")
    assert strong == Background(1.0, plate=plate.tobytes(), plate_width=5)
    assert (mild.severity, str(mild).partition("@")[2]) == (0.2, str(strong).partition("@")[2])
    np.save(tmp_path / "grey.npy", plate[..., 0])
    with pytest.raises(ArgumentError, match=r"holds uint8 \(2, 5\), wanted uint8 \(height, width"):
        parse(f"background:0.2@{tmp_path}/grey.npy")


def test_a_group_of_given_views_has_the_severity_that_its_name_tells() -> None:
    names = {"light:0.5": 0.5, "light:-2": 2.0, "camera-2": 1.0, "a:b:3": 3.0}
    names |= {"x:inf": 1.0, "y:": 1.0}
    assert {name: GivenViews(name).severity for name in names} == names
    both = [GivenViews("light:0.5"), GivenViews("camera-2")]
    assert parse_grid("given_views:light:0.5,camera-2") == both
    for wrong in ("", "a b", "../x", "x" * 101, "-x", "a,b"):
        with pytest.raises(ArgumentError):
            GivenViews(wrong)
    with pytest.raises(ArgumentError, match="group"):
        parse("given_views:a/b")
