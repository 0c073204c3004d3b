"""Frames to encode together: a request's own, views that it sends, and views drawn of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from acpc.contract import NumericMode, PerturbationSet, Views
from torch import Tensor

from acpc_server.encoding.views import Draw, View, draw_views, unchanged
from acpc_server.engine import latent_dtype, to_device
from acpc_server.errors import AcpcError, FailedPrecondition, InvalidArgument
from acpc_server.models import ModelCard
from acpc_server.numerics import to_model_input
from acpc_server.perturb import drawing_work, is_by_frame, is_stochastic

KEY_BYTES = 16
_Place: TypeAlias = tuple[int, int, int]


class FrameSource(NamedTuple):
    """Frames that are encoded together: one of a request's, a view it sends, or one drawn of them.

    Attributes:
        key: Equal for equal latents: covers checkpoint, arithmetic and content.
        pixels: The request's frames, uint8 (m, height, width, 3).
        start: First of those that it takes.
        frames: Number of frames.
        drawn: The view to draw of them; None for the frames as they are.
    """

    key: bytes
    pixels: np.ndarray
    start: int
    frames: int
    drawn: tuple[PerturbationSet, View] | None = None

    @property
    def place(self) -> _Place:
        """Which frames of which array."""
        return id(self.pixels), self.start, self.frames

    def located(self, error: AcpcError) -> AcpcError:
        """Return the error of a view like this one with the field of this request."""
        if self.drawn is None or not isinstance(error, InvalidArgument):
            return error
        _, view = self.drawn
        head, _, _ = error.field.partition(".")
        return error.moved(head, f"perturbations.specs[{view.spec_index}]")


class FrameSources:
    """Makes sources for one checkpoint in one arithmetic, and their frames on ``device``."""

    def __init__(self, card: ModelCard, mode: NumericMode, device: torch.device) -> None:
        self._device = device
        self._size = card.image_size
        self._dtype = latent_dtype(mode)
        self._prefix = f"{card.digest}:{mode!s}:".encode()

    def frames(self, frames: np.ndarray) -> list[FrameSource]:
        """Make a source per frame of uint8, or float32 in [0, 1], (n, height, width, 3)."""
        prefix = self._prefix + f"{frames.shape[1:]}{frames.dtype.char}".encode()
        return [
            FrameSource(_digest(prefix, np.ascontiguousarray(frame).data), frames, row, 1)
            for row, frame in enumerate(frames)
        ]

    def views(
        self, history: Sequence[FrameSource], views: Views, distinct: Sequence[View]
    ) -> list[list[FrameSource]]:
        """Make sources of ``distinct`` views of a history that is given by its own sources.

        None stand for the history itself: its latents must be the same bits, or rounding would
        make an unchanged view look changed.
        """
        if not isinstance(views, PerturbationSet):
            pixels = history[0].pixels
            return [[] if _same_frames(view, pixels) else self.frames(view) for view in views]
        keys = b"".join(frame.key for frame in history)
        whole = FrameSource(keys, history[0].pixels, 0, len(history))
        specs = [(spec, is_by_frame(spec), is_stochastic(spec)) for spec in views.specs]
        found: list[list[FrameSource]] = []
        for view in distinct:
            spec, by_frame, stochastic = specs[view.spec_index]
            parts = [] if spec.changes_nothing else history if by_frame else [whole]
            draw = f"{views.seed}:{views.anchor}:{view.draw}" if stochastic else ""
            text = f"{spec.digest}:{draw}".encode()
            found.append(
                [
                    FrameSource(_digest(x.key + text), x.pixels, x.start, x.frames, (views, view))
                    for x in parts
                ]
            )
        return found

    def make(
        self, sources: Sequence[FrameSource], between: Callable[[], None]
    ) -> tuple[list[Tensor | AcpcError], list[int], Tensor]:
        """Make model input of sources of one size, (n, 3, height, width) each, on the device.

        Returns an error in place of a view that cannot be drawn, the places of those that were, and
        which of these are the history itself, bool on the device. Nothing waits for the device.
        Raises what ``between`` does, which is called between pieces of work.
        """
        inputs: dict[_Place, Tensor] = {}
        for dtype in (np.uint8, np.float32):
            alike = [source for source in sources if source.pixels.dtype == dtype]
            if alike:
                inputs |= self._inputs(alike)
        made: list[Tensor | AcpcError] = [inputs[source.place] for source in sources]
        for count in {source.frames for source in sources if source.drawn}:
            places = [p for p, x in enumerate(sources) if x.drawn and x.frames == count]
            views = _drawn([sources[p] for p in places], inputs, between)
            for place, view in zip(places, views, strict=True):
                made[place] = view
        drawn = [p for p, x in enumerate(sources) if x.drawn and isinstance(made[p], Tensor)]
        own = [inputs[sources[p].place] for p in drawn]
        return made, drawn, unchanged((made[p] for p in drawn), own)  # type: ignore[misc]

    def _inputs(self, sources: Sequence[FrameSource]) -> dict[_Place, Tensor]:
        """Make model input of what sources of one element type and size take, each frame once."""
        arrays, spans = {id(s.pixels): s.pixels for s in sources}, dict[int, range]()
        for source in sources:
            key, rows = id(source.pixels), range(source.start, source.start + source.frames)
            span = spans.get(key, rows)
            spans[key] = range(min(span.start, rows.start), max(span.stop, rows.stop))
        # Joining copies: a message's bytes are read-only, and torch has no read-only tensors.
        parts = [arrays[key][x.start : x.stop] for key, x in spans.items()]
        pixels = torch.from_numpy(np.concatenate(parts))
        (there,) = to_device(self._device, pixels.dtype, pixels)
        made = to_model_input(there, self._size, self._dtype)
        inputs = dict(zip(spans, torch.split(made, [*map(len, spans.values())]), strict=True))
        found: dict[_Place, Tensor] = {}
        for source in sources:
            key = id(source.pixels)
            found[source.place] = inputs[key].narrow(
                0, source.start - spans[key].start, source.frames
            )
        return found


def drawing_of(sources: Iterable[FrameSource], pixels: int) -> float:
    """Price the drawing of sources at so many pixels a frame, as ``perturb.drawing_work``."""
    drawn = ((source, *source.drawn) for source in sources if source.drawn)
    views = ((plan.specs[view.spec_index], source.frames) for source, plan, view in drawn)
    return drawing_work(views, pixels)


def _digest(content: bytes, pixels: memoryview | bytes = b"") -> bytes:
    found = hashlib.blake2b(content, digest_size=KEY_BYTES)
    found.update(pixels)
    return found.digest()


def _same_frames(view: np.ndarray, history: np.ndarray) -> bool:
    """Compare a view, of bytes or of float32 in [0, 1], with the history's frames."""
    if view.dtype != history.dtype:
        history = history.astype(np.float32) / np.float32(255)
    return np.array_equal(view, history)


def _drawn(
    sources: Sequence[FrameSource],
    inputs: Mapping[_Place, Tensor],
    between: Callable[[], None],
) -> list[Tensor | AcpcError]:
    """Draw views of as many frames each, together; one by one where one of them cannot be."""
    histories = [inputs[source.place] for source in sources]
    draws = [Draw(row, *source.drawn) for row, source in enumerate(sources) if source.drawn]
    try:
        return [*draw_views(histories, draws, between)]
    except (InvalidArgument, FailedPrecondition) as error:
        if len(sources) > 1:
            return [one for source in sources for one in _drawn([source], inputs, between)]
        return [error]
