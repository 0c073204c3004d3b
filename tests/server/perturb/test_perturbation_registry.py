"""The table of perturbations, specifications and plug-ins."""

import hashlib
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import processes
import pytest
import torch
from acpc.contract import (
    KINDS,
    GaussianBlur,
    GaussianNoise,
    Identity,
    Perturbation,
    Registered,
    Resize,
    example,
    from_plain,
    parse,
)  # fmt: skip
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.perturb import Perturbation as Entry
from acpc_server.perturb import is_stochastic, perturb_frames, perturbation, registry
from pydantic import BaseModel, Field

APART = {"registered", "composition", "given_views"}
KEY = {"seed": 1, "anchor": 2, "draw": 3}
FRAMES = torch.linspace(-1, 1, 2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
PLUG_IN = """
from pydantic import BaseModel, Field
from acpc_server.perturb import Perturbation

class Fade(BaseModel):
    severity: float = Field(default=0.5, ge=0, le=1)

fade = Perturbation("{name}", Fade, False, lambda frames, p, generator: frames * (1 - p.severity))
wrong_name = Perturbation("else", Fade, False, lambda frames, p, generator: frames)
not_one = 3
"""
# Every kind in a new process; prints the modules that only drawing has loaded.
FRESH = """
import sys
import torch
from acpc.contract import KINDS, example, parse
from acpc_server.perturb import perturb_frames

apart = {"registered", "composition", "given_views"}
specs = [parse(example(cls)) for kind, cls in KINDS.items() if kind not in apart]
before = set(sys.modules)
for spec in specs:
    perturb_frames(torch.rand(2, 3, 32, 32), spec, seed=1, anchor=2, draw=3)
print(*sorted(set(sys.modules) - before))
"""
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
    ({"kind": "saturation", "change": -1.1}, "change", "found -1.1"),
    ({"kind": "cutout", "size": 0.1, "patches": 17}, "patches", "from 1 to 16"),
    ({"kind": "distractor", "size": 0.1, "speed": 2.0}, "speed", "found 2.0"),
    ({"kind": "background", "strength": 1.0}, "key", "found neither of key and plate"),
    ({"kind": "background", "strength": 1.0, "key": "a", "plate": "AAAA"}, "key", "found both"),
    ({"kind": "background", "strength": 1.0, "key": "C4D0D8"}, "key", "six digits of 0-9a-f"),
    ({"kind": "background", "strength": 1.0, "plate": "A"}, "plate", "found 'A', wanted base64"),
    (
        {"kind": "background", "strength": 1.0, "plate": "AAAA", "plate_width": 2},
        "plate_width",
        "found 2, but a plate of 3 bytes has no whole number of rows",
    ),
    (
        {"kind": "background", "strength": 1.0, "plate": "AAAA" * (2**20 + 1), "plate_width": 1},
        "plate",
        "found 3145731 bytes, wanted 0 to 3145728 bytes",
    ),
    ({"kind": "zoom", "cut": 0.91}, "cut", "found 0.91, wanted a number in [0, 0.9]"),
    ({"kind": "knocked_camera", "degrees": 16.0}, "degrees", "in [0, 15] degrees"),
    ({"kind": "registered", "name": ""}, "name", "1 to 200 characters"),
    ({"kind": "registered", "name": "a", "parameters": {"b": "c"}}, "parameters.b", "found 'c'"),
]


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, target: str, package: str = "plug"
) -> None:
    """A distribution as pip lays it out: a module and a dist-info folder on the path."""
    module = f"{package}_{name}"
    (folder / f"{module}.py").write_text(PLUG_IN.format(name=name))
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[acpc.perturbations]\n{name} = {target.format(module=module)}\n"
    )
    monkeypatch.syspath_prepend(str(folder))


class Shift(BaseModel):
    by: float = Field(ge=-1, le=1)


@perturbation("test_shift", parameters=Shift, stochastic=False)
def shift(frames: torch.Tensor, parameters: Shift, generator: np.random.Generator) -> torch.Tensor:
    return frames + parameters.by + float(generator.standard_normal())


@perturbation("test_offset", parameters=Shift, stochastic=True)
def offset(frames: torch.Tensor, parameters: Shift, generator: np.random.Generator) -> torch.Tensor:
    return frames + parameters.by * float(generator.standard_normal())


class Nothing(BaseModel):
    pass


@perturbation("test_crop", parameters=Nothing, stochastic=False)
def crop(frames: torch.Tensor, parameters: Nothing, generator: np.random.Generator) -> torch.Tensor:
    return frames[..., 1:]


def test_a_registered_perturbation_is_applied_with_checked_parameters() -> None:
    spec = Registered(name="test_offset", parameters={"by": 0.5})
    view = perturb_frames(FRAMES, spec, **KEY)
    again = perturb_frames(FRAMES, spec, **KEY)
    other = perturb_frames(FRAMES, spec, **{**KEY, "draw": 4})
    assert is_stochastic(spec)
    assert torch.equal(view, again)
    assert not torch.equal(view, other)
    with pytest.raises(InvalidArgument, match=r"parameters\.by: .*less than or equal to 1; found"):
        perturb_frames(FRAMES, Registered(name="test_offset", parameters={"by": 2.0}), **KEY)


def test_one_declared_deterministic_cannot_depend_on_the_draw() -> None:
    spec = Registered(name="test_shift", parameters={"by": 0.0})
    views = [perturb_frames(FRAMES, spec, seed=d, anchor=d, draw=d) for d in range(3)]
    assert not is_stochastic(spec)
    assert torch.equal(views[0], views[1])
    assert torch.equal(views[1], views[2])


@pytest.mark.parametrize(
    ("spec", "kind", "words"),
    [
        (Registered("test_crop"), FailedPrecondition,
         r"test_crop.*\(2, 3, 4, 5\).*\(2, 3, 4, 4\)"),
        (Registered("fog"), InvalidArgument, "name: no perturbation named 'fog'.*'test_shift'"),
        (Registered("gaussian_noise", {"sigma": 0.1}), InvalidArgument, "_noise' is built in"),
    ],
)  # fmt: skip
def test_what_a_name_cannot_be_is_refused(
    spec: Registered, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        perturb_frames(FRAMES, spec, **KEY)


def test_a_name_is_registered_once() -> None:
    with pytest.raises(FailedPrecondition, match="'test_shift' is already registered"):
        perturbation("test_shift", parameters=Shift, stochastic=True)(lambda f, p, g: f)


def test_an_installed_plug_in_is_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "fade_good", "{module}:fade")
    spec = Registered(name="fade_good", parameters={"severity": 0.25})
    assert torch.equal(perturb_frames(FRAMES, spec, **KEY), FRAMES * 0.75)
    assert torch.equal(perturb_frames(FRAMES, Registered(name="fade_good"), **KEY), FRAMES * 0.5)


def test_requests_that_first_name_a_plug_in_at_once_all_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "fade_together", "{module}:fade")
    load = registry._load

    def slowly(name: str) -> Entry:
        time.sleep(0.05)
        return load(name)

    monkeypatch.setattr(registry, "_load", slowly)
    with ThreadPoolExecutor(4) as callers:
        assert not any(callers.map(is_stochastic, [Registered(name="fade_together")] * 4))


@pytest.mark.process
def test_to_draw_loads_nothing() -> None:
    """The device's thread draws, too, and all others wait for it."""
    code = [sys.executable, "-c", FRESH]
    assert processes.run(code, imported="acpc-server").stdout.split() == []


@pytest.mark.parametrize(
    ("name", "target", "words"),
    [
        ("fade_missing", "no_such_module:fade", "cannot be loaded"),
        ("fade_attribute", "{module}:nothing", "cannot be loaded"),
        ("fade_number", "{module}:not_one", "must be a Perturbation with that name"),
        ("fade_name", "{module}:wrong_name", "must be a Perturbation with that name"),
    ],
)
def test_a_broken_plug_in_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, target: str, words: str
) -> None:
    install(tmp_path, monkeypatch, name, target)
    with pytest.raises(FailedPrecondition, match=f"{name}.*{words}"):
        perturb_frames(FRAMES, Registered(name=name), **KEY)


def test_two_packages_with_one_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "fade_twice", "{module}:fade")
    install(tmp_path, monkeypatch, "fade_twice", "{module}:fade", package="other")
    with pytest.raises(FailedPrecondition, match="comes from 2 installed packages"):
        perturb_frames(FRAMES, Registered(name="fade_twice"), **KEY)


def read(value: Mapping[str, object]) -> Perturbation:
    return from_plain(Perturbation, value)


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


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("identity", 0), ("gaussian_noise:0.08", 0.08), ("gaussian_blur:15", 15), ("resize:1", 0),
        ("resize:0.25", 0.75), ("brightness:-0.3", 0.3), ("brightness:0.3", 0.3),
        ("contrast:-0.3", 0.3), ("color_jitter:0.4", 0.4), ("jpeg:30", 70), ("occlusion:0.2", 0.2),
        ("random_shift:4", 4), ("defocus_blur:2.5", 2.5), ("motion_blur:9@30", 9),
        ("shadow:0.4", 0.4), ("gamma:0.5", 1), ("gamma:2", 1), ("saturation:-0.3", 0.3),
        ("background:0.4@808080", 0.4),
    ],
)  # fmt: skip
def test_severity_grows_with_strength(text: str, severity: float) -> None:
    assert parse(text).severity == severity


def test_severity_of_a_plug_in_is_its_parameter_of_that_name() -> None:
    assert Registered(name="fog", parameters={"severity": 3.0}).severity == 3.0
    assert Registered(name="fog").severity == 0.0


def test_only_what_is_random_needs_more_than_one_draw() -> None:
    certain = {
        "identity", "gaussian_blur", "resize", "brightness", "contrast", "jpeg", "defocus_blur",
        "motion_blur", "gamma", "saturation",
    }  # fmt: skip
    drawn = [parse(example(cls)) for kind, cls in KINDS.items() if kind not in APART]
    assert {spec.kind for spec in drawn if not is_stochastic(spec)} == certain


def test_what_a_plug_in_does_is_not_known_to_be_nothing() -> None:
    assert not Registered(name="fog").changes_nothing
    assert not Registered(name="fog", parameters={"severity": 0.0}).changes_nothing


def test_specs_are_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        GaussianNoise(sigma=0.1).sigma = 0.2
