"""Law: a view's price follows from its parameters and frames; what is too large is not drawn."""

import pytest
from acpc.contract import KINDS, Registered, parse
from acpc_server.errors import InvalidArgument
from acpc_server.perturb import PIECE_WORK, check_drawing, drawing_work, resolve
from acpc_server.perturb.registry import UNKNOWN

PIXELS = 28 * 28


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"registered", "composition"}))
def test_every_kind_states_its_cost(kind: str) -> None:
    cls = KINDS[kind]
    spec = parse(f"{kind}:{cls.examples[1]}" if cls.examples else "identity")
    assert resolve(spec)[0].cost is not UNKNOWN
    assert drawing_work([(spec, 3)], PIXELS) > 0


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        ("gaussian_blur:3", "gaussian_blur:31"),
        ("defocus_blur:2", "defocus_blur:20"),
        ("motion_blur:4", "motion_blur:200"),
        ("haze:0.3", "haze:0.3+random_convolution:0.3"),
    ],
)
def test_what_takes_longer_costs_more(weaker: str, stronger: str) -> None:
    prices = [drawing_work([(parse(text), 3)], PIXELS) for text in (weaker, stronger)]
    assert prices[0] < prices[1]


def test_many_small_views_cost_more_than_their_pixels() -> None:
    spec = parse("random_convolution:0.3")
    assert drawing_work([(spec, 1)] * 500, 1) > 100 * PIECE_WORK


def test_a_view_too_large_to_draw_is_rejected_with_its_bytes() -> None:
    check_drawing(3, 224 * 224, "perturbation")
    with pytest.raises(InvalidArgument) as caught:
        check_drawing(3, 4096 * 4096, "perturbation")
    assert (caught.value.field, caught.value.reason) == ("perturbation", "VIEW_TOO_LARGE")
    assert f"{11 * 3 * 4096**2 * 12} bytes" in caught.value.message


def test_an_unknown_plug_in_is_no_price() -> None:
    with pytest.raises(InvalidArgument):
        drawing_work([(Registered("nobody's"), 3)], PIXELS)
