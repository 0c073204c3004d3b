"""Contrast of every colour in both themes, and that categories can be told apart."""

import itertools
import math

import pytest
from acpc_lab.plotting import COLOURS, KINDS, LEVELS, spread

THEMES = pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
TEXT = ("ink", "soft", "pass", "fail", "open")


def channels(colour: str) -> list[float]:
    """Linear light of red, green and blue."""
    values = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]


def contrast(one: str, other: str) -> float:
    """Contrast ratio as WCAG 2 defines it."""
    weights = (0.2126, 0.7152, 0.0722)
    light, dark = sorted(
        (sum(w * v for w, v in zip(weights, channels(c), strict=True)) for c in (one, other)),
        reverse=True,
    )
    return (light + 0.05) / (dark + 0.05)


@THEMES
def test_text_has_a_contrast_of_at_least_four_and_a_half_and_lines_of_three(theme: int) -> None:
    every = [(role, ground, 4.5) for role in TEXT for ground in ("ground", "raised")]
    every += [(role, "ground", 3.0) for role in (*LEVELS, *KINDS)]
    for role, ground, least in every:
        assert contrast(COLOURS[role][theme], COLOURS[ground][theme]) >= least, role


def test_the_colours_of_the_figures_tell_their_roles() -> None:
    lights = [light for light, _ in COLOURS.values()]
    assert len(lights) == len(set(lights))
    assert all(len(light) == len(dark) == 7 for light, dark in COLOURS.values())


def test_levels_spread_over_the_sequence_in_order() -> None:
    for count in range(1, 13):
        places = [LEVELS.index(role) for role in spread(count)]
        assert len(places) == count and places == sorted(places)
        assert count > len(LEVELS) or len(set(places)) == count
        assert places[-1] == len(LEVELS) - 1


# Dichromats' view, for linear light: Vienot, Brettel and Mollon (1999).
PROTANOPE = ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0))
DEUTERANOPE = ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0))


Matrix = tuple[tuple[float, ...], ...]


def seen(role: str, theme: int, eye: Matrix) -> list[float]:
    """Linear light of a role as an eye sees it."""
    light = channels(COLOURS[role][theme])
    return [sum(w * v for w, v in zip(row, light, strict=True)) for row in eye]


@THEMES
@pytest.mark.parametrize("eye", [PROTANOPE, DEUTERANOPE], ids=["protan", "deutan"])
def test_pass_and_fail_stay_apart_for_the_colour_blind(theme: int, eye: Matrix) -> None:
    pairs = zip(seen("pass", theme, eye), seen("fail", theme, eye), strict=True)
    assert max(abs(a - b) for a, b in pairs) > 0.15


def oklab(light: list[float]) -> list[float]:
    """Linear light in Oklab, where 0.02 is just noticeable: Ottosson (2020)."""
    cones = (
        (0.4122214708, 0.5363325363, 0.0514459929),
        (0.2119034982, 0.6806995451, 0.1073969566),
        (0.0883024619, 0.2817188376, 0.6299787005),
    )
    opponents = (
        (0.2104542553, 0.7936177850, -0.0040720468),
        (1.9779984951, -2.4285922050, 0.4505937099),
        (0.0259040371, 0.7827717662, -0.8086757660),
    )
    roots = [math.cbrt(sum(w * v for w, v in zip(row, light, strict=True))) for row in cones]
    return [sum(w * v for w, v in zip(row, roots, strict=True)) for row in opponents]


NORMAL = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
LEAST = {"normal": (NORMAL, 0.2), "protan": (PROTANOPE, 0.12), "deutan": (DEUTERANOPE, 0.12)}


@THEMES
@pytest.mark.parametrize("eye", LEAST)
def test_neighbouring_levels_look_different(theme: int, eye: str) -> None:
    """The unaugmented ones, in ink, and each step of the sequence, for any number of levels."""
    matrix, least = LEAST[eye]
    at = {role: oklab(seen(role, theme, matrix)) for role in ("ink", *LEVELS)}
    for count in range(1, len(LEVELS) + 1):
        for one, other in itertools.pairwise(("ink", *spread(count))):
            assert math.dist(at[one], at[other]) >= least, (count, one, other)
    if eye == "normal":  # no two levels look alike
        assert min(math.dist(*pair) for pair in itertools.combinations(at.values(), 2)) >= 0.15
