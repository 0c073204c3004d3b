"""The random numbers of a draw.

Their key is (seed, anchor, draw, perturbation name). The severity is not in it: all severities of
one kind share their numbers (common random numbers), so differences between severities carry no
extra sampling noise. Numbers fill the frames in C order, so a longer history keeps the numbers of
its first frames.
"""

import numpy as np

from acpc_server.numerics import keyed_generator

_DOMAIN = b"acpc/draw/1\0"


def draw_generator(name: str, *, seed: int, anchor: int, draw: int) -> np.random.Generator:
    """The generator of one draw.

    Args:
        name: Name of the perturbation.
        seed: Seed of the study, uint64.
        anchor: Identity of the history among those that share the seed, uint64.
        draw: Index of the draw, uint64.

    Returns:
        A fresh generator at the start of its stream.

    Raises:
        InvalidArgument: A number is not a uint64.
    """
    return keyed_generator(_DOMAIN, {"seed": seed, "anchor": anchor, "draw": draw}, name)
