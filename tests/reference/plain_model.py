"""A world model of a few lines, as a plug-in family may return one, whose encoder can be held."""

import threading
from collections.abc import Callable

import torch
from acpc_server.models import ModelCard
from torch import Tensor
from waiting import GENEROUS_SECONDS

CARD = ModelCard(
    family="plain",
    digest="0" * 64,
    image_size=8,
    latent_dim=3,
    history=3,
    action_block_dim=2,
    parameter_count=0,
)


class PlainModel:
    """Encodes a frame as its channel means; a step adds the mean action.

    Args:
        before: Called with the frames before they are encoded; may wait or raise.
    """

    card = CARD
    device = torch.device("cpu")

    def __init__(self, before: Callable[[Tensor], None] = lambda _: None) -> None:
        self._before = before

    def encode(self, frames: Tensor) -> Tensor:
        self._before(frames)
        return frames.mean(dim=(2, 3))

    def embed_actions(self, blocks: Tensor) -> Tensor:
        return blocks

    def predict_next(self, latents: Tensor, actions: Tensor) -> Tensor:
        return latents[:, -1] + actions[:, -1].mean(dim=-1, keepdim=True)


class Held:
    """An encoder step that waits until it is let go, and notes the marks it was given.

    Attributes:
        order: Marks in the order they were encoded.
        calls: Marks that shared a call.
    """

    def __init__(self) -> None:
        self.order: list[float] = []
        self.calls: list[list[float]] = []
        self.entered = threading.Event()
        self.free = threading.Event()

    def __call__(self, frames: Tensor) -> None:
        marks = torch.unique_consecutive(frames[:, 0, 0, 0]).tolist()
        self.order += marks
        self.calls.append(marks)
        self.entered.set()
        assert self.free.wait(GENEROUS_SECONDS)


def frames(mark: float, count: int = 1) -> Tensor:
    """Constant frames that carry a mark."""
    return torch.full((count, 3, 8, 8), mark)
