"""Several changes one after the other: what each draws, and what is known of them together."""

import numpy as np
import pytest
import torch
from acpc.contract import (
    Composition,
    GivenViews,
    Jpeg,
    Perturbation,
    PerturbationSet,
    Registered,
    from_plain,
    grids,
    parse,
    parse_grid,
    read_spec,
    to_plain,
)
from acpc.v1 import perturbation_pb2 as pb
from acpc_server.encoding import distinct_views
from acpc_server.encoding.frame_sources import FrameSource, drawn_views
from acpc_server.errors import InvalidArgument
from acpc_server.perturb import (
    DrawKey,
    Draws,
    drawing_work,
    is_stochastic,
    perturb_frames,
    perturb_histories,
    require_known,
)

KEY = {"seed": 9101, "anchor": 3, "draw": 2}
FRAMES = torch.linspace(-1, 1, 3 * 3 * 24 * 32).reshape(3, 3, 24, 32)
COMPOSED = (
    "gaussian_noise:0.05+jpeg:30",
    "jpeg:30+gaussian_noise:0.05",
    "identity+shadow:0.5@0.1+blur:5+zoom:0.2",
    "knocked_camera:4+haze:0.4+salt_and_pepper:0.02",
)


@pytest.mark.parametrize("text", COMPOSED)
def test_a_composition_is_its_parts_one_after_the_other(text: str) -> None:
    by_hand = FRAMES
    for part in text.split("+"):
        by_hand = perturb_frames(by_hand, parse(part), **KEY)
    spec = parse(text)
    assert torch.equal(perturb_frames(FRAMES, spec, **KEY), by_hand)
    together = perturb_histories([FRAMES, FRAMES * 0.5], spec, [DrawKey(**KEY), DrawKey(1, 2, 3)])
    assert torch.equal(together[0], by_hand)
    parts = [parse(part) for part in text.split("+")]
    assert drawing_work([(spec, 3)], 768) == drawing_work([(part, 3) for part in parts], 768)
    assert is_stochastic(spec) == any(map(is_stochastic, parts))


def test_two_of_one_kind_draw_numbers_of_their_own_nested_each() -> None:
    spec = parse("gaussian_noise:0.05+gaussian_noise:0.05")
    alone = perturb_frames(FRAMES, parse("gaussian_noise:0.05"), **KEY) - FRAMES
    second = perturb_frames(FRAMES, spec, **KEY) - FRAMES - alone
    assert abs(np.corrcoef(alone.flatten(), second.flatten())[0, 1]) < 0.06
    stronger = parse("gaussian_noise:0.05+gaussian_noise:0.1")
    twice = perturb_frames(FRAMES, stronger, **KEY) - FRAMES - alone
    torch.testing.assert_close(twice, 2 * second, atol=1e-5, rtol=0)
    own = Draws("gaussian_noise#2", [DrawKey(**KEY)], FRAMES.device).normals(FRAMES.shape)
    std = second.std((0, 2, 3)) / own.std((0, 2, 3))
    torch.testing.assert_close(second, own * std.view(3, 1, 1), atol=1e-5, rtol=1e-3)


def test_it_travels_and_names_all_its_parts() -> None:
    for text in COMPOSED:
        spec = parse(text)
        assert read_spec(spec.to_spec()) == spec == from_plain(Perturbation, to_plain(spec))
        assert parse(str(spec)) == spec
    assert parse(COMPOSED[0]).canonical_json == (
        '{"kind":"composition","parts":[{"kind":"gaussian_noise","sigma":0.05},'
        '{"kind":"jpeg","quality":30}]}'
    )
    assert len({parse(text).digest for text in COMPOSED}) == len(COMPOSED)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["jpeg:30", "gaussian_noise:0.1"], [("jpeg", 70.0), ("gaussian_noise", 0.1)]),
        (
            ["gaussian_noise:0.02,0.05+jpeg:30"],
            [("gaussian_noise+jpeg:30", 0.02), ("gaussian_noise+jpeg:30", 0.05)],
        ),
        (["zoom:0.1+jpeg:30,10"], [("zoom:0.1+jpeg", 70.0), ("zoom:0.1+jpeg", 90.0)]),
        (["zoom:0.1+jpeg:30"], [("zoom:0.1+jpeg:30", None)]),
        (
            ["zoom:0.1+jpeg:30", "zoom:0.2+jpeg:10"],
            [("zoom:0.1+jpeg:30", None), ("zoom:0.2+jpeg:10", None)],
        ),
        (
            ["zoom:0.1+jpeg:30", "jpeg:30+zoom:0.1"],
            [("zoom:0.1+jpeg:30", None), ("jpeg:30+zoom:0.1", None)],
        ),
    ],
)
def test_severity_is_that_of_the_part_that_varies_alone(
    texts: list[str], found: list[tuple[str, float | None]]
) -> None:
    assert grids([spec for text in texts for spec in parse_grid(text)]) == found


def test_severity_zero_of_every_part_is_the_history_itself() -> None:
    nothing, something = parse("zoom:0+haze:0+gaussian_noise:0"), parse("zoom:0+haze:0.1")
    assert (nothing.changes_nothing, nothing.severity) == (True, 0.0)
    assert (something.changes_nothing, something.severity) == (False, 1.0)
    assert torch.equal(perturb_frames(FRAMES, nothing, **KEY), FRAMES)
    history = FrameSource(np.zeros((3, 28, 28, 3), np.uint8))
    plan = PerturbationSet((nothing, something, something), 1, 0, 0)
    views = drawn_views(history, plan, distinct_views(plan))
    assert views[0] is history
    assert views[1] is views[2] is not history, "equal views are one source"


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((Jpeg(3),), "parts: found 1 entries, wanted 2 to 4"),
        ((Jpeg(3),) * 5, "parts: found 5 entries, wanted 2 to 4"),
        ((Jpeg(3), GivenViews("a")), r"parts\[1\]: found GivenViews"),
        ((parse(COMPOSED[0]), Jpeg(3)), r"parts\[0\]: found Composition"),
    ],
)
def test_what_cannot_be_a_part_is_named(parts: tuple[Perturbation, ...], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Composition(parts)


def test_errors_name_the_part_on_the_wire_at_submission_and_when_drawn() -> None:
    nested = pb.PerturbationSpec()
    nested.composition.parts.add().jpeg.quality = 30
    nested.composition.parts.add().composition.SetInParent()
    with pytest.raises(InvalidArgument, match=r"^composition\.parts\[1\]\.composition: cannot be"):
        read_spec(nested)
    nested.composition.parts[1].jpeg.quality = 300
    with pytest.raises(
        InvalidArgument, match=r"^composition\.parts\[1\]\.jpeg\.quality: found 300"
    ):
        read_spec(nested)
    unknown = Composition((Jpeg(3), Registered("no_such")))
    with pytest.raises(InvalidArgument, match=r"^specs\[0\]\.composition\.parts\[1\]\.registered"):
        require_known([unknown], "specs[{}]")
    with pytest.raises(InvalidArgument, match=r"^parts\[1\]\.random_shift\.pixels: is 24"):
        perturb_frames(FRAMES, parse("jpeg:30+random_shift:24"), **KEY)
    with pytest.raises(InvalidArgument, match="wanted at most 256"):
        parse_grid("zoom:0..0.5/17+jpeg:1..16/16")
