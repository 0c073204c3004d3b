"""Scene, viewpoint and sensor against float64 loops, and the laws of each."""

import itertools
from collections.abc import Callable

import numpy as np
import pair_reference
import pytest
import torch
from acpc.contract import (
    Background,
    Cutout,
    Distractor,
    Haze,
    KnockedCamera,
    Perturbation,
    RandomConvolution,
    SaltAndPepper,
    Saturation,
    Stutter,
    Zoom,
    to_plain,
)
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.pixels import to_model_input
from acpc_server.perturb import perturb_frames
from torch.utils._python_dispatch import TorchDispatchMode

KEY = {"seed": 9101, "anchor": 3, "draw": 2}
PLATE = np.random.default_rng(3).integers(0, 256, (11, 14, 3), np.uint8)


def photos(count: int = 3) -> torch.Tensor:
    """Random frames before the plate, some of them near it."""
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (count, 11, 14, 3), np.uint8)
    near = rng.random(frames.shape[:3]) < 0.5
    noise = rng.integers(-40, 41, frames.shape)
    frames = np.where(near[..., None], (PLATE + noise).clip(0, 255), frames).astype(np.uint8)
    return to_model_input(torch.from_numpy(frames), 11)


def plated(strength: float, tolerance: float = 0.1, plate: np.ndarray = PLATE) -> Background:
    return Background(
        strength, tolerance=tolerance, plate=plate.tobytes(), plate_width=plate.shape[1]
    )


SPECS: list[Perturbation] = [
    *(Saturation(change) for change in (-1.0, -0.4, 0.7)),
    *(Cutout(0.3), Cutout(0.2, 9), Cutout(1.0, 1)),
    *(Distractor(0.5), Distractor(1.0, 0.0), Distractor(0.7, 0.9)),
    *(
        Background(1.0, "8090a0", 0.3),
        Background(0.3, "404040", 1.0),
        plated(0.6),
        plated(1.0, 0.5),
    ),
    *(RandomConvolution(0.2), RandomConvolution(1.0)),
    *(Zoom(0.05), Zoom(0.5), Zoom(0.9)),
    *(KnockedCamera(1.0), KnockedCamera(15.0), KnockedCamera(15.0, 90.0), KnockedCamera(5.0, 10.0)),
    *(Haze(0.3), Haze(1.0), SaltAndPepper(0.1), SaltAndPepper(1.0)),
    *(Stutter(0.6), Stutter(1.0)),
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("draw", range(3))
def test_a_view_is_that_of_the_loop(spec: Perturbation, draw: int) -> None:
    frames, key = photos(), {**KEY, "draw": draw}
    expected = pair_reference.perturbed(frames.double().numpy(), spec.to_spec(), **key)
    found = perturb_frames(frames, spec, **key).double().numpy()
    np.testing.assert_allclose(found, expected, atol=4e-6)
    changed = np.abs(expected - frames.double().numpy()).max()
    assert changed > 0.01 or (spec.kind == "stutter" and spec.severity < 1)


def seen(spec: Perturbation, frames: torch.Tensor, draw: int) -> torch.Tensor:
    return perturb_frames(frames, spec, seed=0, anchor=0, draw=draw)


@pytest.mark.parametrize("kind", [Cutout, Distractor, SaltAndPepper])
def test_what_a_milder_one_covers_a_stronger_one_covers(
    kind: Callable[[float], Perturbation],
) -> None:
    """Of one draw, when it is larger or when there are more of it."""
    for draw in range(20):
        covered = [seen(kind(s), photos(), draw) != photos() for s in (0.1, 0.3, 0.6, 1.0)]
        assert not any((mild & ~strong).any() for mild, strong in itertools.pairwise(covered))


def test_a_frame_that_is_repeated_is_repeated_by_a_worse_camera() -> None:
    still = [
        (seen(Stutter(chance), photos(200), 0).diff(dim=0) == 0).flatten(1).all(1)
        for chance in (0.0, 0.3, 0.6, 1.0)
    ]
    assert not any((mild & ~strong).any() for mild, strong in itertools.pairwise(still))
    assert [x.float().mean().item() for x in still] == pytest.approx([0, 0.3, 0.6, 1], abs=0.12)


@pytest.mark.parametrize(
    "kind", [Saturation, Haze, RandomConvolution, lambda s: Background(s, "808080", 1.0)]
)
def test_a_mixture_moves_along_one_line(kind: Callable[[float], Perturbation]) -> None:
    frames = to_model_input(torch.full((1, 8, 8, 3), 120, dtype=torch.uint8), 8)
    frames[:, 0] += 0.1  # not grey
    weak, strong = (seen(kind(s), frames, 0) - frames for s in (0.2, 0.4))
    torch.testing.assert_close(strong, 2 * weak, rtol=1e-4, atol=1e-5)
    assert strong.abs().max() > 0.01


def test_a_distractor_moves_and_stays_in_sight() -> None:
    still = photos(1).expand(9, -1, -1, -1)
    for draw in range(20):
        covered = (seen(Distractor(0.5, 0.3), still, draw) != still).any(1).flatten(1).int()
        assert (covered.sum(1) > 0).all()
        assert all((a != b).any() for a, b in itertools.pairwise(covered))


def test_a_plate_of_the_frames_own_size_marks_what_differs() -> None:
    """A thing before the plate stays, whatever colour it has; the plate's own digest names it."""
    frame = PLATE.copy()
    frame[3:6, 4:8] = 255 - frame[3:6, 4:8] // 2 * 2
    frame[3:6, 4:8, 0] = np.where(PLATE[3:6, 4:8, 0] < 128, 255, 0)
    frames = to_model_input(torch.from_numpy(frame[None]), 11)
    view = seen(plated(1.0), frames, 0)
    kept = (view == frames).all(1)[0]
    assert kept[3:6, 4:8].all() and kept.sum() == 12
    other = plated(1.0, plate=255 - PLATE)
    assert other.digest != plated(1.0).digest and str(other) != str(plated(1.0))
    assert len(to_plain(other)["plate"]) == 4 * PLATE.size / 3


def test_a_plate_of_another_aspect_is_an_error() -> None:
    larger = np.repeat(np.repeat(PLATE, 2, 0), 2, 1)
    assert seen(plated(1.0, plate=larger), photos(), 0).shape == photos().shape
    with pytest.raises(InvalidArgument, match="plate: is 11 x 12 pixels, of another aspect than"):
        seen(plated(1.0, plate=PLATE[:, :12]), photos(), 0)


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that is made, in values."""

    values = 0

    def __torch_dispatch__(self, made, types, args=(), kwargs=None) -> object:  # noqa: ANN001
        out = made(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.values = max(self.values, out.numel())
        return out


def test_a_plate_of_one_column_is_never_resized() -> None:
    """As wide as the frames, 3 MB of it would be 12 GB."""
    with Largest() as largest, pytest.raises(InvalidArgument, match="is 20000 x 1 pixels"):
        seen(plated(1.0, plate=np.zeros((20_000, 1, 3), np.uint8)), photos(), 0)
    assert largest.values < 20_000


def test_a_plate_is_prepared_once() -> None:
    plate = np.repeat(np.repeat(PLATE, 9, 0), 9, 1)
    views = []
    for _ in range(2):
        with Largest() as largest:
            views.append(seen(plated(1.0, plate=plate), photos(), 0))
    assert torch.equal(*views) and largest.values < plate.size


def test_haze_is_thinnest_where_half_its_strength_and_greys_everything() -> None:
    black = torch.full((1, 3, 9, 9), 0.0)
    dense = pair_reference.camera.pixels(seen(Haze(1.0), black, 4).double().numpy())
    clear = pair_reference.camera.pixels(black.double().numpy())
    share = (dense - clear) / (0.8 - clear)
    assert share.min() > 0.5 - 1e-5 and share.max() < 1.0
