"""The largest certified severity, against its definition written as a loop over the grid."""

import numpy as np
from acpc.contract import (
    Brightness,
    GaussianNoise,
    MotionBlur,
    Perturbation,
    Resize,
)
from acpc_server.encoding.views import all_views
from acpc_server.interactive.certificates import certified_severities
from hypothesis import given
from hypothesis import strategies as st
from planning_world import drawn


def defined(draws: list[tuple[float, bool]]) -> float | None:
    """Largest s such that every draw of severity at most s is certified."""
    holds = [s for s, _ in draws if all(certified for other, certified in draws if other <= s)]
    return max(holds, default=None)


@given(st.data())
def test_every_milder_draw_counts(data: st.DataObject) -> None:
    kinds: list[list[Perturbation]] = [
        [GaussianNoise(sigma=s) for s in data.draw(st.lists(st.sampled_from([0.01, 0.02, 0.3])))],
        [Resize(scale=s) for s in data.draw(st.lists(st.sampled_from([1.0, 0.5, 0.25])))],
        [Brightness(change=c) for c in data.draw(st.lists(st.sampled_from([-0.3, -0.1, 0.1])))],
        [
            MotionBlur(length=length, angle=angle)
            for length, angle in data.draw(
                st.lists(st.sampled_from([(3.0, 0.0), (3.0, 90.0), (9.0, 0.0)]))
            )
        ],
    ]
    specs = data.draw(st.permutations([spec for kind in kinds for spec in kind]))
    views = drawn(*specs, draws=data.draw(st.integers(1, 3)))
    flags = st.lists(st.booleans(), min_size=len(all_views(views)), max_size=len(all_views(views)))
    top1, elite = data.draw(flags), data.draw(flags)
    answers = certified_severities(views, top1=top1, elite=elite)
    assert [a.kind for a in answers] == list(dict.fromkeys(spec.kind for spec in specs))
    for answer in answers:
        for certified, found in ((top1, answer.top1), (elite, answer.elite)):
            draws = [
                (views.specs[view.spec_index].severity, flag)
                for view, flag in zip(all_views(views), certified, strict=True)
                if views.specs[view.spec_index].kind == answer.kind
            ]
            assert found == defined(draws)


def test_a_grid_of_both_signs_certifies_in_both_directions() -> None:
    specs = [Brightness(change=c) for c in (-0.2, -0.1, 0.1, 0.2)]
    views = drawn(*specs, draws=1)
    certified = [False, True, True, True]  # darkening by 0.2 is not
    (answer,) = certified_severities(views, top1=certified, elite=[True] * 4)
    assert (answer.kind, answer.top1, answer.elite) == ("brightness", 0.1, 0.2)


def test_own_views_have_no_severity() -> None:
    frames = np.zeros((2, 1, 4, 4, 3), np.uint8)
    assert certified_severities(frames, top1=[True, True], elite=[True, True]) == ()
