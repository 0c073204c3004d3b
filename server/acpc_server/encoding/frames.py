"""Names frames by a hash of their content, so that cached latents are found before encoding."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from acpc.contract import NumericMode, PerturbationSet, Views
from torch import Tensor

from acpc_server.encoding.views import View, distinct_views, draw_view
from acpc_server.errors import InvalidArgument
from acpc_server.models import ModelCard
from acpc_server.numerics import to_model_input

KEY_BYTES = 16


@dataclass(frozen=True)
class FrameSource:
    """Frames that are encoded together.

    Attributes:
        key: Equal for equal latents: covers checkpoint, arithmetic and content.
        make: The frames as model input, (n, 3, height, width); none (n = 0) for a view that turns
            out to be the history itself.
    """

    key: bytes
    make: Callable[[], Tensor]


class FrameSources:
    """Sources for one checkpoint in one arithmetic."""

    def __init__(self, card: ModelCard, mode: NumericMode) -> None:
        self._size = card.image_size
        self._prefix = f"{card.digest}:{mode!s}:".encode()

    def frames(self, frames: np.ndarray) -> list[FrameSource]:
        """A source per frame of uint8 (n, height, width, 3)."""
        return [
            FrameSource(self._key(b"frame", frame), partial(self._input, frame[None]))
            for frame in frames
        ]

    def views(self, history: np.ndarray, views: Views) -> list[FrameSource | None]:
        """A source per distinct view of a history, uint8 (h, height, width, 3).

        None stands for the history itself: its latents must be the same bits, or rounding would
        make an unchanged view look changed.
        """
        if not isinstance(views, PerturbationSet):
            return [
                None
                if np.array_equal(view, history)
                else FrameSource(self._key(b"view", view), partial(self._input, view))
                for view in views
            ]
        clean = cache(partial(self._input, history))
        content = self._key(b"history", history)

        def draw(view: View) -> Tensor:
            try:
                drawn = draw_view(clean(), views, view)
            except InvalidArgument as error:
                raise error.below("perturbations") from error
            return drawn[:0] if torch.equal(drawn, clean()) else drawn

        specs = [spec.digest for spec in views.specs]
        return [
            None
            if views.specs[view.spec_index].changes_nothing
            else FrameSource(
                self._drawn_key(content, specs[view.spec_index], views, view), partial(draw, view)
            )
            for view in distinct_views(views)
        ]

    def _input(self, frames: np.ndarray) -> Tensor:
        # A copy: a message's bytes are read-only, and torch has no read-only tensors.
        return to_model_input(torch.from_numpy(frames.copy()), self._size)

    def _key(self, role: bytes, frames: np.ndarray) -> bytes:
        content = hashlib.blake2b(self._prefix + role, digest_size=KEY_BYTES)
        content.update(str(frames.shape).encode())
        content.update(np.ascontiguousarray(frames).data)
        return content.digest()

    def _drawn_key(self, content: bytes, spec: str, plan: PerturbationSet, view: View) -> bytes:
        text = f"{spec}:{plan.seed}:{plan.anchor}:{view.draw}".encode()
        return hashlib.blake2b(content + text, digest_size=KEY_BYTES).digest()
