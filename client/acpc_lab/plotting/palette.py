"""The colours in light and dark; figures are drawn in light ones, and the page swaps them by class.

Neighbouring levels differ in hue and in lightness: they lie at least 0.2 apart in Oklab (0.02 is
just noticeable), and 0.12 for the common kinds of colour blindness; any two levels at least 0.15.
Every line has a contrast of at least 3:1 on its ground and every text of at least 4.5:1.
"""

from __future__ import annotations

from collections.abc import Sequence

# role: (light, dark). The light values are distinct, because figures are themed by them.
COLOURS: dict[str, tuple[str, str]] = {
    "ink": ("#1c2024", "#e9ebed"),
    "soft": ("#545c64", "#a9b1b9"),
    "rule": ("#c9cdd1", "#3c434a"),
    "ground": ("#fdfdfc", "#15181b"),
    "raised": ("#f3f3f0", "#1d2125"),
    "pass": ("#00609b", "#6cb8f0"),
    "fail": ("#b04300", "#f29a5e"),
    "open": ("#6d5b00", "#cdb84a"),
    "region": ("#d3e6f3", "#1d3345"),
    "level0": ("#884702", "#8d6b0c"),
    "level1": ("#ef5f0a", "#f7955e"),
    "level2": ("#5d0753", "#a53c92"),
    "level3": ("#954ced", "#ae9cfe"),
    "level4": ("#1d2eb5", "#3058f5"),
    "level5": ("#0898b7", "#18d9f7"),
    "level6": ("#0b5111", "#01a751"),
    "level7": ("#979607", "#ace600"),
    "kind0": ("#0068a6", "#5fb3ef"),
    "kind1": ("#c24c00", "#f0945b"),
    "kind2": ("#00795a", "#3fc39a"),
    "kind3": ("#a8498b", "#e08fc4"),
    "kind4": ("#846600", "#d9b53c"),
    "kind5": ("#4b5aa8", "#a3b1ff"),
    "kind6": ("#5d656d", "#9ca4ac"),
}
LEVELS = tuple(role for role in COLOURS if role.startswith("level"))
KINDS = tuple(role for role in COLOURS if role.startswith("kind"))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def light(role: str) -> str:
    """The colour that figures are drawn in."""
    return COLOURS[role][0]


INK, SOFT, RULE = light("ink"), light("soft"), light("rule")


def spread(count: int) -> Sequence[str]:
    """Roles of ``count`` ordered levels, spread over the sequence of level colours."""
    last = len(LEVELS) - 1
    if count == 1:
        return (LEVELS[last],)
    return tuple(LEVELS[round(index * last / (count - 1))] for index in range(count))


def style_sheet() -> str:
    """The colours as CSS variables, and a class that fills or strokes with each."""
    lights = "".join(f"--{role}:{value};" for role, (value, _) in COLOURS.items())
    darks = "".join(f"--{role}:{value};" for role, (_, value) in COLOURS.items())
    classes = "".join(
        f".f-{role}{{fill:var(--{role})}}.s-{role}{{stroke:var(--{role})}}" for role in COLOURS
    )
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{darks}}}}}"
    return f":root{{color-scheme:light dark;{lights}}}{dark}{classes}"
