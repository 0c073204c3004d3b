"""Renders states in an environment whose looks are spaces of variations, as stable-worldmodel's."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from acpc_client.errors import ArgumentError
from numpy.typing import NDArray

from acpc_lab.factors.views import Render


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
    """The mixture of two values of a space, of their type."""
    kind = np.asarray(start).dtype
    mixed = (1 - level) * np.asarray(start, np.float64) + level * np.asarray(end, np.float64)
    if np.issubdtype(kind, np.integer):
        mixed = np.rint(mixed)
    return mixed.astype(kind) if mixed.ndim else kind.type(mixed)
