"""The table of perturbations, specifications and plug-ins."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from acpc.contract import (
    Distractor,
    Perturbation,
    Registered,
    from_plain,
    parse,
)  # fmt: skip
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.perturb import is_stochastic, perturb_frames, perturbation
from example_scripts import install_module
from pydantic import BaseModel, Field

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


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, target: str, package: str = "plug"
) -> None:
    module = f"{package}_{name}"
    text, points = PLUG_IN.format(name=name), {name: target.format(module=module)}
    install_module(folder, module, text, "acpc.perturbations", **points)
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


def test_an_installed_plug_in_is_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "fade_good", "{module}:fade")
    spec = Registered(name="fade_good", parameters={"severity": 0.25})
    assert torch.equal(perturb_frames(FRAMES, spec, **KEY), FRAMES * 0.75)
    assert torch.equal(perturb_frames(FRAMES, Registered(name="fade_good"), **KEY), FRAMES * 0.5)


@pytest.mark.parametrize(
    ("name", "target", "words"),
    [
        ("fade_missing", "no_such_module:fade", "cannot be loaded"),
        ("fade_attribute", "{module}:nothing", "cannot be loaded"),
        ("fade_number", "{module}:not_one", "must be a Perturbation with that name"),
        ("fade_name", "{module}:wrong_name", "must be a Perturbation with that name"),
        ("fade_twice", "{module}:fade", "comes from 2 installed packages"),
    ],
)
def test_a_broken_plug_in_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, target: str, words: str
) -> None:
    install(tmp_path, monkeypatch, name, target)
    if name == "fade_twice":
        install(tmp_path, monkeypatch, name, target, package="other")
    with pytest.raises(FailedPrecondition, match=f"{name}.*{words}"):
        perturb_frames(FRAMES, Registered(name=name), **KEY)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"sigma": 0.08, "kind": "gaussian_noise"}, '{"kind":"gaussian_noise","sigma":0.08}'),
        ({"kind": "motion_blur", "length": 9}, '{"angle":0.0,"kind":"motion_blur","length":9.0}'),
        ({"parameters": {"z": 1.0, "a": 2.0}, "name": "fog", "kind": "registered"},
         '{"kind":"registered","name":"fog","parameters":{"a":2.0,"z":1.0}}'),
    ],
)  # fmt: skip
def test_canonical_json_and_digest_are_frozen(value: Mapping[str, object], text: str) -> None:
    spec = from_plain(Perturbation, value)
    assert spec.canonical_json == text
    assert spec.digest == hashlib.sha256(text.encode()).hexdigest()


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


def test_a_colour_of_each_view_is_no_copy_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a tensor of the host is, for which a GPU is waited for. Constants are sent once."""
    made, tensor = list[object](), torch.tensor

    def counted(*given: object, **how: object) -> torch.Tensor:
        made.append(given)
        return tensor(*given, **how)

    monkeypatch.setattr(torch, "tensor", counted)
    for draw in range(3):
        perturb_frames(FRAMES, Distractor(0.3, 0.1), **(KEY | {"draw": draw}))
    assert not made
