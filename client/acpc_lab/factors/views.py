"""Renders the histories of anchors under factors of variation, as named groups of views.

By any renderer, or in an environment whose looks are spaces of variations, as stable-worldmodel's.
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from acpc.arrays import NDArray
from acpc_client import AnchorArrays
from acpc_client.errors import ArgumentError

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


def environment_renderer(
    environment: Any,  # noqa: ANN401 - of a library that the lab does not need
    place: Callable[[Any, NDArray[Any]], object] | None = None,
) -> Render:
    """A ``Render`` for an environment with a ``variation_space`` and ``render()`` to an RGB array.

    A factor is a variation's dotted name, for example ``agent.color``. At level 0 it has its
    space's initial value, at level 1 one that is sampled, and in between a mixture of both; whole
    numbers are rounded. Everything else keeps its initial value. Each frame is
    ``reset(options={"variation": [], "variation_values": {name: value}, "state": state})``.

    Args:
        environment: One environment, not a vector of them.
        place: Puts the environment, once it is reset, into a state, where its ``reset`` does not
            take the option ``state``.

    Raises ArgumentError: When it renders: the environment has no such variation.
    """
    inner = getattr(environment, "unwrapped", environment)

    def render(
        states: NDArray[Any], factor: str, level: float, rng: np.random.Generator
    ) -> NDArray[np.uint8]:
        space = _space(inner, factor)
        space.seed(int(rng.integers(2**31)))
        value = _between(space.init_value, space.sample(set_value=False), level)
        frames = []
        for state in states:
            options: dict[str, Any] = {"variation": [], "variation_values": {factor: value}}
            if place is None:
                options["state"] = state
            environment.reset(seed=0, options=options)
            if place is not None:
                place(environment, state)
            frames.append(np.asarray(environment.render(), dtype=np.uint8))
        return np.stack(frames)

    return render


def _space(environment: Any, name: str) -> Any:  # noqa: ANN401 - as above
    spaces = getattr(environment, "variation_space", None)
    try:
        return reduce(lambda found, key: found[key], name.split("."), spaces)
    except (KeyError, TypeError) as error:
        known = ", ".join(spaces.names()) if spaces is not None else "none"
        raise ArgumentError("factors", f"found {name!r}, wanted one of {known}") from error


def _between(start: Any, end: Any, level: float) -> Any:  # noqa: ANN401 - a number or an array
    """A mixture of two values of a space, with their type."""
    kind = np.asarray(start).dtype
    mixed = (1 - level) * np.asarray(start, np.float64) + level * np.asarray(end, np.float64)
    if np.issubdtype(kind, np.integer):
        mixed = np.rint(mixed)
    return mixed.astype(kind) if mixed.ndim else kind.type(mixed)
