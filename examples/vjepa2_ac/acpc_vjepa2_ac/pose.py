"""The pose of a robot's arm after an action: known, not predicted."""

from __future__ import annotations

import torch
from torch import Tensor

POSE_DIM = 7
"""Position in metres (3), angles about the fixed axes x, y, z in radians (3), gripper in [0, 1]."""
LOCK = 1e-7


def moved(pose: Tensor, action: Tensor) -> Tensor:
    """Poses (..., 7) after actions (..., 7); in float64 inside, as the angles need.

    Positions add. The action's rotation is applied after the pose's. The gripper adds and stays
    within [0, 1].
    """
    here, change = pose.double(), action.double()
    turned = angles(rotation(change[..., 3:6]) @ rotation(here[..., 3:6]))
    gripper = (here[..., 6:] + change[..., 6:]).clamp(0.0, 1.0)
    return torch.cat([here[..., :3] + change[..., :3], turned, gripper], dim=-1).to(pose.dtype)


def rotation(turns: Tensor) -> Tensor:
    """Matrices (..., 3, 3) that turn about x, then y, then z by angles (..., 3)."""
    (cx, cy, cz), (sx, sy, sz) = turns.cos().unbind(-1), turns.sin().unbind(-1)
    rows = [
        torch.stack([cy * cz, sx * sy * cz - cx * sz, cx * sy * cz + sx * sz], dim=-1),
        torch.stack([cy * sz, sx * sy * sz + cx * cz, cx * sy * sz - sx * cz], dim=-1),
        torch.stack([-sy, sx * cy, cx * cy], dim=-1),
    ]
    return torch.stack(rows, dim=-2)


def angles(matrices: Tensor) -> Tensor:
    """The inverse of :func:`rotation`; where only x - z or x + z is determined, z is 0."""
    m = matrices
    flat = torch.hypot(m[..., 0, 0], m[..., 1, 0])
    locked = flat < LOCK
    x = torch.where(
        locked,
        torch.atan2(-m[..., 1, 2], m[..., 1, 1]),
        torch.atan2(m[..., 2, 1], m[..., 2, 2]),
    )
    z = torch.where(locked, 0.0, torch.atan2(m[..., 1, 0], m[..., 0, 0]))
    return torch.stack([x, torch.atan2(-m[..., 2, 0], flat), z], dim=-1)
