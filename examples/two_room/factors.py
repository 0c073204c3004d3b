"""Factors of variation of the two-room world: other looks of the same states.

Each factor has a level from 0, the world as it is, to 1. What a level leaves open (which colour,
from where the light comes, which tiles) is drawn at random, and a generator in the same state draws
the same for every level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from acpc.arrays import NDArray
from numpy.typing import ArrayLike
from world import IMAGE_SIZE, PLAIN, Appearance, Floats, render

_TILES = 8


def _hue(turn: Floats) -> Floats:
    """Red, green and blue (..., 3) in [0, 1] of a saturated colour, by its place on the circle."""
    return 0.5 + 0.5 * np.cos(2 * np.pi * (turn[..., None] - np.arange(3) / 3))


def _agent_colour(look: Appearance, level: Floats, rng: np.random.Generator) -> Appearance:
    other = PLAIN.agent.max() * _hue(rng.random(level.shape))
    return replace(look, agent=look.agent + level[..., None] * (other - look.agent))


def _wall_colour(look: Appearance, level: Floats, rng: np.random.Generator) -> Appearance:
    return replace(look, wall=look.wall + 0.5 * level[..., None] * _hue(rng.random(level.shape)))


def _floor_colour(look: Appearance, level: Floats, rng: np.random.Generator) -> Appearance:
    return replace(look, floor=look.floor - 0.3 * level[..., None] * _hue(rng.random(level.shape)))


def _wall_thickness(look: Appearance, level: Floats, _: np.random.Generator) -> Appearance:
    return replace(look, half_wall=look.half_wall * (1 + 2 * level))


def _agent_size(look: Appearance, level: Floats, _: np.random.Generator) -> Appearance:
    return replace(look, size=look.size * (1 + 0.6 * level))


def _lighting(look: Appearance, level: Floats, rng: np.random.Generator) -> Appearance:
    turn = 2 * np.pi * rng.random(level.shape)[..., None, None]
    y, x = np.mgrid[:IMAGE_SIZE, :IMAGE_SIZE] / (IMAGE_SIZE - 1) - 0.5
    far = 0.5 + (np.cos(turn) * x + np.sin(turn) * y) / np.sqrt(2)
    return replace(look, light=look.light * (1 - 0.6 * level[..., None, None] * far))


def _floor_tiles(look: Appearance, level: Floats, rng: np.random.Generator) -> Appearance:
    tiles = rng.random((*level.shape, _TILES, _TILES)).repeat(IMAGE_SIZE // _TILES, axis=-1)
    tiles = tiles.repeat(IMAGE_SIZE // _TILES, axis=-2)
    return replace(look, pattern=look.pattern + 0.3 * level[..., None, None] * tiles)


FACTORS: dict[str, Callable[[Appearance, Floats, np.random.Generator], Appearance]] = {
    "agent_colour": _agent_colour,
    "wall_colour": _wall_colour,
    "floor_colour": _floor_colour,
    "wall_thickness": _wall_thickness,
    "agent_size": _agent_size,
    "lighting": _lighting,
    "floor_tiles": _floor_tiles,
}
COLOURS = ("agent_colour", "wall_colour", "floor_colour")


def varied(look: Appearance, factor: str, level: ArrayLike, rng: np.random.Generator) -> Appearance:
    """A look with one more factor at a level (...): one for all frames, or one for each."""
    return FACTORS[factor](look, np.asarray(level, np.float64), rng)


def render_factor(
    positions: Floats, factor: str, level: ArrayLike, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """The frames (..., 32, 32, 3) of some positions (..., 2) under a factor."""
    return render(positions, varied(PLAIN, factor, level, rng))
