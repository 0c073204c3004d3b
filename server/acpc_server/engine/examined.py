"""What a device was tried with, and how that is told."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from acpc_server.models import FrozenWorldModel

FRAMES, STEPS, CANDIDATES = 4, 3, 8
OK, FAILS, LOW, UNTRIED, TOLD = "ok", "FAILS", "low", "not tried", "-"


@dataclass(frozen=True)
class Examined:
    """One thing that was tried: what came out, what should have, and what to do about it.

    Attributes:
        what: Name of the check, stable across releases.
        measured: What came out, for people.
        expected: What should have; empty where nothing can be said.
        verdict: ``ok``, ``FAILS``, ``low`` for what is right and slow, ``not tried`` for what the
            device had no room for, or ``-`` for what is told and not judged.
        advice: What to do; empty where there is nothing.
        value: The number behind ``measured``, in SI units or relative; None where there is none.
    """

    what: str
    measured: str
    expected: str = ""
    verdict: str = TOLD
    advice: str = ""
    value: float | None = None

    @property
    def failed(self) -> bool:
        """Whether the device gave an answer that is wrong, or cannot give one."""
        return self.verdict == FAILS


@dataclass(frozen=True)
class Trial:
    """Inputs of one model, on the CPU in float32."""

    frames: Tensor
    histories: Tensor
    past: Tensor
    pools: Tensor

    @classmethod
    def of(cls, model: FrozenWorldModel) -> Trial:
        """The same numbers every time."""
        card, generator = model.card, torch.Generator().manual_seed(1)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        side = card.image_size
        return cls(
            normal(FRAMES, 3, side, side),
            normal(2, card.history, card.latent_dim),
            normal(card.history - 1, card.action_block_dim),
            normal(1, CANDIDATES, STEPS, card.action_block_dim),
        )


def apart(found: Tensor, wanted: Tensor) -> float:
    """Largest difference, relative to the largest number that is wanted."""
    return float(
        (found.double() - wanted.double()).abs().max() / wanted.abs().max().clamp_min(1e-30)
    )
