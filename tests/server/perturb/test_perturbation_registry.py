"""Perturbations of others: registered in the process or installed as plug-ins."""

from pathlib import Path

import numpy as np
import pytest
import torch
from acpc.contract import Registered
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.perturb import is_stochastic, perturb_frames, perturbation
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


def test_one_that_changes_the_shape_is_refused() -> None:
    with pytest.raises(FailedPrecondition, match=r"test_crop.*\(2, 3, 4, 5\).*\(2, 3, 4, 4\)"):
        perturb_frames(FRAMES, Registered(name="test_crop"), **KEY)


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(InvalidArgument, match=r"name: no perturbation named 'fog'.*'test_shift'"):
        perturb_frames(FRAMES, Registered(name="fog"), **KEY)


def test_a_built_in_goes_by_its_kind() -> None:
    with pytest.raises(InvalidArgument, match="'gaussian_noise' is built in"):
        perturb_frames(FRAMES, Registered(name="gaussian_noise", parameters={"sigma": 0.1}), **KEY)


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
