"""Checks that a model keeps the promises on which results depend, in any family.

A plug-in's author runs it on a checkpoint of theirs (``acpc-server doctor
--conformance``, or :func:`check_model` in a test): a model that breaks a promise still loads, but
gives wrong answers without an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import forward_ad

from acpc_server.errors import AcpcError
from acpc_server.models.frozen import FrozenWorldModel, TakesProprio, with_proprio
from acpc_server.models.rollout import forward_derivatives, rollout, rollout_pool

Check = Callable[["_Trial"], str]
# Rows may differ by rounding between batches, not by more.
TOLERANCE = 1e-4
# What a family's own code may raise on inputs it should take.
FAULTS = (AcpcError, ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError,
          TypeError, ValueError)  # fmt: skip
FRAMES, HORIZON, CANDIDATES = 4, 3, 3


@dataclass(frozen=True)
class Finding:
    """A requirement on a model, and how the model breaks it: empty when it is kept."""

    promise: str
    problem: str = ""

    @property
    def kept(self) -> bool:
        """Whether the promise is kept."""
        return not self.problem


def check_model(model: FrozenWorldModel) -> list[Finding]:
    """Try every promise on random frames and actions; return one finding each, in fixed order."""
    trial, findings = _Trial(model), []
    for promise, check in _PROMISES.items():
        try:
            with torch.inference_mode():
                findings.append(Finding(promise, check(trial)))
        except FAULTS as error:
            findings.append(Finding(promise, f"{type(error).__name__}: {error}"))
    return findings


_PROMISES: dict[str, Check] = {}


def _promise(text: str) -> Callable[[Check], Check]:
    return lambda check: _PROMISES.setdefault(text, check)


class _Trial:
    """One model with inputs; each check returns what is wrong, or nothing."""

    def __init__(self, model: FrozenWorldModel) -> None:
        self._model, self._card = model, model.card
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).to(model.device)

        card = model.card
        side, width, dim = card.image_size, card.action_block_dim, card.latent_dim
        self._frames = normal(FRAMES, 3, side, side)
        self._blocks = normal(FRAMES, card.history + HORIZON - 1, width)
        self._latents = normal(FRAMES, card.history, dim)
        self._pools = normal(2, CANDIDATES, HORIZON, width)
        self._proprio = normal(FRAMES, card.proprio_dim)
        # Such a model may keep more of a predicted frame than its latent, which a loop cannot.
        self._looped = 1 if isinstance(model, TakesProprio) else HORIZON

    @_promise("the card is complete")
    def _complete(self) -> str:
        card = self._card
        counts = "image_size", "latent_dim", "history", "action_block_dim", "parameter_count"
        for field in counts:
            value = getattr(card, field)
            if not isinstance(value, int) or value < 1:
                return f"{field} is {value!r}, not a positive integer"
        if not re.fullmatch("[0-9a-f]{64}", card.digest):
            return "digest is not a sha256 in hexadecimal; take the reader's"
        return "" if card.family else "family has no name"

    @_promise("encode gives finite float32 latents as wide as the card says")
    def _encodes(self) -> str:
        found = self._model.encode(self._frames)
        return _wrong(found, (FRAMES, self._card.latent_dim), self._model.device)

    @_promise("encode gives the same again: no dropout, eval mode")
    def _encodes_again(self) -> str:
        first, second = (self._model.encode(self._frames) for _ in range(2))
        return "" if torch.equal(first, second) else f"off by {_gap(first, second):.1e}"

    @_promise("a frame's latent does not depend on the frames beside it")
    def _encodes_alone(self) -> str:
        together = self._model.encode(self._frames)
        alone = torch.cat([self._model.encode(frame[None]) for frame in self._frames])
        return _apart(together, alone)

    @_promise("embed_actions keeps time: a block's embedding is its own")
    def _embeds(self) -> str:
        together = self._model.embed_actions(self._blocks)
        if together.shape[:2] != self._blocks.shape[:2] or together.ndim != 3:
            return f"{list(self._blocks.shape)} became {list(together.shape)}"
        alone = [self._model.embed_actions(block[:, None]) for block in self._blocks.unbind(1)]
        return _apart(together, torch.cat(alone, dim=1))

    def _predict(self, latents: Tensor, blocks: Tensor) -> Tensor:
        return self._model.predict_next(latents, self._model.embed_actions(blocks))

    @_promise("predict_next works for every history up to the card's")
    def _predicts(self) -> str:
        for length in range(1, self._card.history + 1):
            window = self._latents[:, :length], self._blocks[:, :length]
            first, second = self._predict(*window), self._predict(*window)
            wrong = _wrong(first, (FRAMES, self._card.latent_dim), self._model.device)
            if wrong:
                return f"history {length}: {wrong}"
            if not torch.equal(first, second):
                return f"history {length}: not the same again; is the model in eval mode?"
        return ""

    @_promise("a prediction does not depend on the rows beside it")
    def _predicts_alone(self) -> str:
        blocks = self._blocks[:, : self._card.history]
        together = self._predict(self._latents, blocks)
        rows = [self._predict(self._latents[i, None], blocks[i, None]) for i in range(FRAMES)]
        return _apart(together, torch.cat(rows))

    @_promise("predict_next sees the last latent and the last action")
    def _listens(self) -> str:
        blocks = self._blocks[:, : self._card.history]
        plain = self._predict(self._latents, blocks)
        for name, place in (("latent", self._latents), ("action", blocks)):
            changed = place.clone()
            changed[:, -1] += 1.0
            other = (changed, blocks) if name == "latent" else (self._latents, changed)
            if torch.equal(self._predict(*other), plain):
                return f"another last {name} gives the same prediction"
        return ""

    @_promise("predictions see the proprioception that comes with frames")
    def _attaches(self) -> str:
        model, width = self._model, self._card.proprio_dim
        if not width:
            return ""
        if not isinstance(model, TakesProprio):
            return f"proprio_dim is {width}, but there is no embed_proprio"
        slots = model.embed_proprio(self._proprio)
        blocks = self._blocks[:, :1]
        found = [
            self._predict(with_proprio(self._latents[:, :1], x[:, None]), blocks)
            for x in (slots, slots + 1.0)
        ]
        if torch.equal(*found):
            return "another proprioception gives the same prediction"
        return _apart(slots[:1], model.embed_proprio(self._proprio[:1]))

    @_promise("inputs are left as they were, and results need no gradient")
    def _touches_nothing(self) -> str:
        inputs = self._frames, self._latents, self._blocks
        before = [x.clone() for x in inputs]
        results = [self._model.encode(self._frames), self._model.embed_actions(self._blocks)]
        blocks = self._blocks[:, : self._card.history]
        results.append(self._predict(self._latents, blocks))
        if not all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True)):
            return "an input was written to"
        with torch.inference_mode(False), torch.enable_grad():
            encoded = self._model.encode(before[0].clone())
        needy = any(x.requires_grad for x in (*results, encoded))
        return "a result requires grad; freeze the parameters and use no_grad" if needy else ""

    def _loop(self, latents: Tensor, blocks: Tensor) -> Tensor:
        """The rollout of the paper, window by window."""
        known = list(latents.unbind(1))
        while len(known) < latents.shape[1] + self._looped:
            start = max(0, len(known) - self._card.history)
            window = torch.stack(known[start:], dim=1)
            known.append(self._predict(window, blocks[:, start : len(known)]))
        return torch.stack(known[latents.shape[1] :], dim=1)

    @_promise("a rollout is the step-by-step loop")
    def _rolls_out(self) -> str:
        for length in range(1, self._card.history + 1):
            latents, blocks = self._latents[:, :length], self._blocks[:, : length + HORIZON - 1]
            rolled = rollout(self._model, latents, blocks)[:, : self._looped]
            wrong = _apart(rolled, self._loop(latents, blocks))
            if wrong:
                return f"history {length}: {wrong}"
        return ""

    @_promise("a pool is its candidates one by one")
    def _rolls_pools(self) -> str:
        for count in (1, 2):  # for all histories, and for half of them each
            past, pools = self._blocks[:count, : self._card.history - 1], self._pools[:count]
            found = rollout_pool(self._model, self._latents, past, pools)
            each = torch.cat([past[:, None].expand(-1, CANDIDATES, -1, -1), pools], dim=2)
            blocks = each.repeat_interleave(FRAMES // count, dim=0)  # (frames, candidates, ...)
            rows = [self._loop(self._latents, one) for one in blocks.unbind(1)]
            if wrong := _apart(found[:, :, : self._looped], torch.stack(rows, dim=1)):
                return f"{count} pools: {wrong}"
        return ""

    @_promise("forward-mode derivatives pass (sensitivity study)")
    def _differentiates(self) -> str:
        with forward_derivatives():
            frames = self._frames.clone()
            dual = forward_ad.make_dual(frames, torch.ones_like(frames))  # type: ignore[no-untyped-call]
            encoded = self._model.encode(dual)
            blocks = self._blocks[:, :1].clone()
            predicted = self._predict(encoded[:, None], blocks)
            parts = forward_ad.unpack_dual(predicted)  # type: ignore[no-untyped-call]
            tangent: Tensor | None = parts.tangent
        return "" if tangent is not None else "none came out; use no_grad, not inference_mode"


def _wrong(found: Tensor, shape: tuple[int, ...], device: torch.device) -> str:
    if found.shape != shape:
        return f"shape {list(found.shape)}, but {list(shape)} is wanted"
    if found.dtype != torch.float32 or found.device.type != device.type:
        return f"{found.dtype} on {found.device}, but float32 on {device} is wanted"
    return "" if bool(torch.isfinite(found).all()) else "not finite"


def _gap(found: Tensor, wanted: Tensor) -> float:
    """Largest difference over the size of what is wanted."""
    return float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-30))


def _apart(found: Tensor, wanted: Tensor) -> str:
    if found.shape != wanted.shape:
        return f"shape {list(found.shape)}, but {list(wanted.shape)} is wanted"
    gap = _gap(found, wanted)
    return "" if gap <= TOLERANCE else f"off by {gap:.1e} of its size"
