"""Renders the histories of anchors under factors of variation, as named groups of views."""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from acpc_client import AnchorArrays
from acpc_client.errors import ArgumentError
from numpy.typing import NDArray

LEVELS = (1 / 3, 2 / 3, 1.0)
"""Levels of a factor where nothing says which: weak, medium, strong."""
Render = Callable[[NDArray[Any], str, float, np.random.Generator], NDArray[np.uint8]]
"""``(states (h, ...), factor, level, generator) -> RGB frames (h, height, width, 3)`` of a history.

All frames of a history share what the generator decides, for example the colour. It is in one state
at every level, so that levels differ by strength alone. Level 0 is the world as it is.
"""
_GROUP = re.compile(r"(?P<factor>[^:]+):(?P<level>[0-9.eE+-]+)")
_TOLERANCE = 2.0


def group_of(factor: str, level: float) -> str:
    """The name of the group of views that show a factor at a level."""
    return f"{factor}:{level:.4g}"


def factor_of(group: str) -> tuple[str, float] | None:
    """The factor and the level of a group of views; None for a group of another name."""
    found = _GROUP.fullmatch(group)
    try:
        return found and (found["factor"], float(found["level"]))
    except ValueError:
        return None


def rendered_views(
    anchors: AnchorArrays,
    states: NDArray[Any],
    render: Render,
    factors: Sequence[str],
    *,
    levels: Sequence[float] = LEVELS,
    draws: int = 5,
    seed: int = 0,
) -> dict[str, NDArray[np.uint8]]:
    """Views of every history under every factor and level, for ``client.anchors.upload(views=)``.

    A view depends on the seed, the anchor's identity, the factor and its number, not on the level.

    Args:
        anchors: The anchors; their frames stay as they are.
        states: States of the frames of each history, (n, h, ...), as ``render`` takes them.
        render: Renders one history; must give the anchors' own frames at level 0.
        factors: Names that ``render`` knows; a name must not contain a colon.
        levels: In [0, 1].
        draws: Views of each history in a group.
        seed: Of what a level leaves open, at least 0.

    Returns:
        By ``factor:level``, uint8 (n, draws, h, height, width, 3).

    Raises ArgumentError: States that do not fit the anchors, a level or name that cannot be used,
    or frames that are not those of the anchors: of another size, or others at level 0.
    """
    history, shape = anchors.history, anchors.frames.shape[2:]
    if states.shape[:2] != (len(anchors), history):
        wanted = f"({len(anchors)}, {history}, ...): one of each frame of the histories"
        raise ArgumentError("states", f"found the shape {states.shape}, wanted {wanted}")
    for factor in factors:
        if ":" in factor:
            raise ArgumentError("factors", f"found {factor!r}, wanted a name without a colon")
    for level in levels:
        if not 0 <= level <= 1:
            raise ArgumentError("levels", f"found {level}, wanted a number in [0, 1]")

    def view(row: int, factor: str, level: float, draw: int) -> NDArray[np.uint8]:
        key = (seed, int(anchors.anchor_ids[row]), draw, zlib.crc32(factor.encode()))
        frames = render(states[row], factor, level, np.random.default_rng(key))
        if frames.shape != (history, *shape) or frames.dtype != np.uint8:
            wanted = f"uint8 {(history, *shape)}, as the anchors have"
            found = f"{frames.dtype} {frames.shape}"
            raise ArgumentError("render", f"{factor} at {level:g} gave {found}, wanted {wanted}")
        return frames

    own = anchors.frames[0:1][0, :history].astype(np.int64)
    for factor in factors:
        apart = np.abs(view(0, factor, 0.0, 0) - own).mean()
        if apart > _TOLERANCE:
            raise ArgumentError(
                "render",
                f"the first history rendered with {factor} at level 0 is {apart:.1f} grey levels "
                "from its frames on average: are these its states, in the units of the renderer?",
            )
    views = {}
    for factor, level in itertools.product(factors, levels):
        views[group_of(factor, level)] = np.stack(
            [
                np.stack([view(row, factor, level, draw) for draw in range(draws)])
                for row in range(len(anchors))
            ]
        )
    return views
