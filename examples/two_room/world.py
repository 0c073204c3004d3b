"""A small two-room world: a faint agent, a wall, and one door.

The world is the unit square with x to the right and y down, as in the picture. A vertical wall
at x = 0.5 leaves one door. Per step the agent moves ``SPEED`` times its action, x first, then y,
and slides along what it meets. Everything is vectorised over episodes and seeded: the same seed
gives the same arrays.

The agent is drawn as a wide, low-contrast blob. Its visibility decides how fragile a model
trained on clean frames is: a sharp dot is too easy to tell from pixel noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from acpc.arrays import NDArray

Floats = NDArray[np.float64]

SPEED = 0.036
WALL_LEFT, WALL_RIGHT = 0.48, 0.52
DOOR_TOP, DOOR_BOTTOM = 0.30, 0.58
FRAMESKIP = 5
ARRIVED = 0.05

IMAGE_SIZE = 32
BACKGROUND, WALL_SHADE = 0.92, 0.20
BLOB_STD, BLOB_CONTRAST = 0.08, 0.25
_SUBPIXELS = 8
# Frames drawn together: few enough for the cache of a processor.
AT_ONCE = 16

_STEP_NOISE = 0.35
_SLOWEST = 0.3
_DOORSTEP = 0.10
_DOOR_CENTRE = (DOOR_TOP + DOOR_BOTTOM) / 2
_DOOR_REACH = (DOOR_BOTTOM - DOOR_TOP) / 2 - 0.06


@dataclass(frozen=True)
class Episodes:
    """Logged episodes: row t holds the position before action t.

    Attributes:
        positions: (episodes, steps, 2) x and y in the unit square.
        actions: (episodes, steps, 2) in [-1, 1]; the last row of each episode is NaN, because
            no recorded position follows it.
    """

    positions: Floats
    actions: Floats


def in_wall(positions: Floats) -> NDArray[np.bool_]:
    """Say which positions (..., 2) lie strictly inside the wall."""
    x, y = positions[..., 0], positions[..., 1]
    return (x > WALL_LEFT) & (x < WALL_RIGHT) & ((y < DOOR_TOP) | (y > DOOR_BOTTOM))


def step(positions: Floats, actions: Floats) -> Floats:
    """Move agents by one environment step.

    Args:
        positions: (n, 2), none inside the wall.
        actions: (n, 2); values outside [-1, 1] are clipped.

    Returns:
        (n, 2) new positions, none inside the wall or outside the unit square.
    """
    x, y = positions[:, 0], positions[:, 1]
    move = SPEED * np.clip(actions, -1.0, 1.0)

    # A step is shorter than the wall is thick, so looking at where it ends is enough.
    new_x = np.clip(x + move[:, 0], 0.0, 1.0)
    blocked = in_wall(np.stack([new_x, y], axis=1))
    new_x = np.where(blocked, np.where(x < 0.5, WALL_LEFT, WALL_RIGHT), new_x)

    new_y = np.clip(y + move[:, 1], 0.0, 1.0)
    blocked = in_wall(np.stack([new_x, new_y], axis=1))
    new_y = np.where(blocked, np.clip(new_y, DOOR_TOP, DOOR_BOTTOM), new_y)
    return np.stack([new_x, new_y], axis=1)


def simulate(episodes: int, blocks: int, seed: int) -> Episodes:
    """Run the noisy waypoint policy: to a random goal, through the door where needed.

    Args:
        episodes: How many episodes to run side by side.
        blocks: Length of each in action blocks of ``FRAMESKIP`` steps.
        seed: Seed of starts, goals, speeds and noise.

    Returns:
        The logged episodes, ``blocks * FRAMESKIP`` rows each.
    """
    rng = np.random.default_rng(seed)
    steps = blocks * FRAMESKIP
    position = _free_positions(rng, episodes)
    goal = _free_positions(rng, episodes)
    speed = rng.uniform(_SLOWEST, 1.0, size=(episodes, 1))

    positions = np.empty((episodes, steps, 2))
    actions = np.full((episodes, steps, 2), np.nan)
    for t in range(steps):
        positions[:, t] = position
        if t == steps - 1:
            break
        heading = _waypoint(position, goal) - position
        distance = np.linalg.norm(heading, axis=1, keepdims=True)
        wanted = heading / np.maximum(distance, SPEED) * speed
        action = np.clip(wanted + _STEP_NOISE * rng.standard_normal((episodes, 2)), -1.0, 1.0)
        actions[:, t] = action
        position = step(position, action)

        fresh = _free_positions(rng, episodes)
        arrived = np.linalg.norm(goal - position, axis=1, keepdims=True) < ARRIVED
        goal = np.where(arrived, fresh, goal)
    return Episodes(positions=positions, actions=actions)


def render(positions: Floats) -> NDArray[np.uint8]:
    """Draw one frame (..., 32, 32, 3), RGB, per position (..., 2)."""
    places = positions.reshape(-1, 2)
    drawn = np.empty((len(places), IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
    for start in range(0, len(places), AT_ONCE):
        drawn[start : start + AT_ONCE] = _drawn(places[start : start + AT_ONCE])
    return drawn.reshape(*positions.shape[:-1], *drawn.shape[1:])


def _drawn(positions: Floats) -> NDArray[np.uint8]:
    centres = (np.arange(IMAGE_SIZE) + 0.5) / IMAGE_SIZE
    spread = 2 * BLOB_STD**2
    across = np.exp(-((centres - positions[..., 0, None]) ** 2) / spread)
    down = np.exp(-((centres - positions[..., 1, None]) ** 2) / spread)
    blob = down[..., :, None] * across[..., None, :]  # (..., 32, 32)
    rooms = BACKGROUND + (WALL_SHADE - BACKGROUND) * _wall()[..., None]
    agent = BLOB_CONTRAST * np.array([0.0, 1.0, 1.0])  # green and blue only
    frames = rooms - agent * blob[..., None]
    return np.rint(255.0 * np.clip(frames, 0.0, 1.0)).astype(np.uint8)


def _free_positions(rng: np.random.Generator, count: int) -> Floats:
    """Draw positions (count, 2) uniform over the two rooms, wall and doorway left out."""
    x = rng.uniform(0.0, 1.0 - (WALL_RIGHT - WALL_LEFT), size=count)
    x = np.where(x < WALL_LEFT, x, x + (WALL_RIGHT - WALL_LEFT))
    return np.stack([x, rng.uniform(0.0, 1.0, size=count)], axis=1)


def _waypoint(position: Floats, goal: Floats) -> Floats:
    """Point (n, 2) to head for: the goal, or a doorstep when the goal is in the other room."""
    far_side = np.sign(goal[:, 0] - 0.5)
    crossing = (position[:, 0] - 0.5) * far_side < 0
    lined_up = np.abs(position[:, 1] - _DOOR_CENTRE) < _DOOR_REACH
    doorstep_x = 0.5 + np.where(lined_up, far_side, -far_side) * _DOORSTEP
    doorstep = np.stack([doorstep_x, np.full_like(doorstep_x, _DOOR_CENTRE)], axis=1)
    return np.where(crossing[:, None], doorstep, goal)


def _wall() -> Floats:
    """Share (32, 32) of each pixel that is wall, by a grid of points in it."""
    fine = (np.arange(IMAGE_SIZE * _SUBPIXELS) + 0.5) / (IMAGE_SIZE * _SUBPIXELS)

    def shares(inside: NDArray[np.bool_]) -> Floats:
        return inside.reshape(IMAGE_SIZE, _SUBPIXELS).mean(axis=-1)

    columns = shares(np.abs(fine - 0.5) < (WALL_RIGHT - WALL_LEFT) / 2)
    rows = shares((fine < DOOR_TOP) | (fine > DOOR_BOTTOM))
    return rows[:, None] * columns
