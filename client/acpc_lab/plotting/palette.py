"""The colours in light and dark; figures are drawn in light ones, and the page swaps them by class.

Any two levels lie at least 0.1 apart in Oklab (0.02 is just noticeable), and neighbours at least
0.05 for the common kinds of colour blindness. Every line has a contrast of at least 3:1 on its
ground and every text of at least 4.5:1.
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
    "level0": ("#c4810c", "#b98420"),
    "level1": ("#d05a48", "#d96a5c"),
    "level2": ("#bd3f98", "#c9699f"),
    "level3": ("#8a52dc", "#ab80dc"),
    "level4": ("#1b53b0", "#78a4ff"),
    "level5": ("#00747c", "#27c8f9"),
    "level6": ("#0f7d2f", "#16e3d4"),
    "level7": ("#6b4a10", "#95ef9d"),
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
        f".f-{role}{{fill:var(--{role})}}.s-{role}{{stroke:var(--{role})}}"
        f".b-{role}{{background:var(--{role})}}"
        for role in COLOURS
    )
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{darks}}}}}"
    return f":root{{color-scheme:light dark;{lights}}}{dark}{classes}"
