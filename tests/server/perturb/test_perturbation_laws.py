"""What holds for every perturbation: identity at zero, keys, batch layout, range."""

from math import isfinite
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from acpc.contract import (
    GRADED,
    Background,
    Identity,
    Perturbation,
    Shadow,
    bounds_of,
    examples_of,
    from_plain,
    to_plain,
    unchanged,
)
from acpc_server.numerics.pixels import IMAGENET_MEAN, IMAGENET_STD, to_model_input
from acpc_server.perturb import is_stochastic, perturb_frames
from hypothesis import given
from hypothesis import strategies as st

HEIGHT, WIDTH = 16, 19
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
UINT64 = st.integers(0, 2**64 - 1)
# Mild to strong of every kind; the strong ones change random frames, whatever the draw.
EXAMPLES = [examples_of(kind) for kind in GRADED]
STRONG = [strong for _, _, strong in EXAMPLES]
ZEROS = [*map(unchanged, STRONG), Identity()]
# Kinds whose view of a frame depends on its place or on the frames before it.
IN_TIME = ("distractor", "gaussian_noise", "salt_and_pepper", "stutter")
# What fits the frames, of parameters whose declared ranges go beyond.
FITTING = {"kernel_size": 31, "pixels": 15, "radius": 15, "length": 30}


def within(cls: type[Perturbation]) -> st.SearchStrategy[Perturbation]:
    """Changes of a kind with every number within its declared range."""
    types, ranges = get_type_hints(cls), dict[str, st.SearchStrategy[Any]]()
    for name, bound in bounds_of(cls).items():
        least, most = (bound.ge if isfinite(bound.ge) else 0.01), min(bound.le, bound.lt)
        most = FITTING.get(name, most)
        if types[name] is int:
            ranges[name] = st.integers(int(least), int(most))
        elif types[name] is float:
            ranges[name] = st.floats(least, most, exclude_max=most == bound.lt)
    if cls is Background:
        ranges |= {"key": st.from_regex("[0-9a-f]{6}", fullmatch=True), "plate_width": st.just(0)}
    return st.builds(cls, **ranges)


specs = st.one_of(*(within(type(spec)) for spec in STRONG))
by_kind = pytest.mark.parametrize("spec", STRONG, ids=lambda spec: spec.kind)


def photos(count: int = 3, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (count, HEIGHT + 5, WIDTH + 6, 3), np.uint8)
    return to_model_input(torch.from_numpy(frames), HEIGHT)  # resized, so between the bytes


def pixels(frames: torch.Tensor) -> torch.Tensor:
    std, mean = (torch.tensor(v).double().view(3, 1, 1) for v in (IMAGENET_STD, IMAGENET_MEAN))
    return frames.double() * std + mean


@pytest.mark.parametrize("spec", [*ZEROS, *STRONG], ids=str)
def test_the_input_is_untouched_and_zero_severity_changes_no_bit(spec: Perturbation) -> None:
    assert spec.changes_nothing == (spec in ZEROS)
    for dtype in DTYPES:
        frames = (photos() * 1.5).to(dtype)  # beyond black and white too
        frames[:, :, 3] = -0.0
        before = frames.clone().view(torch.uint8)
        view = perturb_frames(frames, spec, seed=1, anchor=2, draw=3)
        assert (view.shape, view.dtype) == (frames.shape, dtype)
        assert torch.equal(frames.view(torch.uint8), before)
        assert view.data_ptr() != frames.data_ptr()
        assert torch.equal(view.view(torch.uint8), before) == spec.changes_nothing


@given(specs, UINT64, UINT64, UINT64)
def test_a_view_depends_on_the_key_and_its_own_frames_alone(
    spec: Perturbation, seed: int, anchor: int, draw: int
) -> None:
    """Again, from a spec that travelled as JSON, in other memory, and with fewer frames beside."""
    frames, key = photos(), {"seed": seed, "anchor": anchor, "draw": draw}
    view = perturb_frames(frames, spec, **key)
    assert torch.isfinite(view).all()
    again = from_plain(Perturbation, to_plain(spec))
    assert again.digest == spec.digest
    strided = frames.to(memory_format=torch.channels_last)
    assert torch.equal(perturb_frames(strided, again, **key), view)
    assert torch.equal(perturb_frames(frames[:2], spec, **key), view[:2])


@by_kind
def test_only_what_is_placed_in_time_depends_on_the_place_or_on_other_frames(
    spec: Perturbation,
) -> None:
    key = {"seed": 1, "anchor": 2, "draw": 3}
    view = perturb_frames(photos(1).expand(3, -1, -1, -1), spec, **key)
    alone = [perturb_frames(frame, spec, **key) for frame in torch.split(photos(), 1)]
    together = perturb_frames(photos(), spec, **key)
    by_frame = bool((view == view[:1]).all()) and torch.equal(together, torch.cat(alone))
    assert by_frame == (spec.kind not in IN_TIME)


@given(specs.filter(lambda spec: spec.kind != "gaussian_noise"), UINT64)
def test_only_noise_leaves_the_range_of_pixels(spec: Perturbation, draw: int) -> None:
    found = pixels(perturb_frames(photos(), spec, seed=0, anchor=0, draw=draw))
    assert found.min() > -1e-6
    assert found.max() < 1 + 1e-6


@pytest.mark.parametrize("spec", [medium for _, medium, _ in EXAMPLES], ids=str)
def test_draws_differ_exactly_when_the_spec_is_stochastic(spec: Perturbation) -> None:
    frames = photos()
    for part in ("seed", "anchor", "draw"):
        key = {"seed": 5, "anchor": 6, "draw": 7}
        views = [perturb_frames(frames, spec, **{**key, part: value}) for value in range(8)]
        assert is_stochastic(spec) == any(not torch.equal(views[0], view) for view in views[1:])


def test_every_shadow_has_a_dark_and_a_light_part() -> None:
    """Its edge crosses the middle half, so that no draw leaves the frame as it was."""
    light = torch.full((1, 3, 24, 32), 2.0)
    for draw in range(100):
        view = perturb_frames(light, Shadow(strength=1.0), seed=5, anchor=0, draw=draw)[0, 0]
        share = (view < 0.0).float().mean()
        assert 0.03 < share < 0.97
