"""Checks that a model keeps the promises on which results depend, in any family.

A plug-in's author runs it on a checkpoint of theirs (``acpc-server doctor
--conformance``, or :func:`check_model` in a test): a model that breaks a promise still loads, but
gives wrong answers without an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.autograd import forward_ad

from acpc_server.errors import AcpcError
from acpc_server.models.frozen import FrozenWorldModel, TakesProprio, with_proprio
from acpc_server.models.rollout import forward_derivatives, rollout, rollout_pool

Problems = Iterator[str]
Check = Callable[["_Trial"], Problems]
# Rows may differ by rounding between batches, not by more.
TOLERANCE = 1e-4
# What a family's own code may raise on inputs it should take.
FAULTS = (AcpcError, ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError,
          TypeError, ValueError)  # fmt: skip
FRAMES, HORIZON, CANDIDATES = 4, 3, 3


def check_model(model: FrozenWorldModel) -> dict[str, str]:
    """Try every promise on random frames and actions; say how each is broken, empty: it is kept."""
    trial, found = _Trial(model), {}
    for promise, check in _PROMISES.items():
        try:
            with torch.inference_mode():
                found[promise] = next(filter(None, check(trial)), "")
        except FAULTS as error:
            found[promise] = f"{type(error).__name__}: {error}"
    return found


_PROMISES: dict[str, Check] = {}


def _promise(text: str) -> Callable[[Check], Check]:
    return lambda check: _PROMISES.setdefault(text, check)


class _Trial:
    """One model with inputs; each check yields what is wrong, or nothing, of case after case."""

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
        self._window = self._latents, self._blocks[:, : card.history]
        # Such a model may keep more of a predicted frame than its latent, which a loop cannot.
        self._looped = 1 if isinstance(model, TakesProprio) else HORIZON

    def _predict(self, latents: Tensor, blocks: Tensor) -> Tensor:
        return self._model.predict_next(latents, self._model.embed_actions(blocks))

    def _loop(self, latents: Tensor, blocks: Tensor) -> Tensor:
        """The rollout of the paper, window by window."""
        known = list(latents.unbind(1))
        while len(known) < latents.shape[1] + self._looped:
            start = max(0, len(known) - self._card.history)
            window = torch.stack(known[start:], dim=1)
            known.append(self._predict(window, blocks[:, start : len(known)]))
        return torch.stack(known[latents.shape[1] :], dim=1)

    @_promise("the card is complete")
    def _complete(self) -> Problems:
        card = self._card
        for field in "image_size", "latent_dim", "history", "action_block_dim", "parameter_count":
            value = getattr(card, field)
            good = isinstance(value, int) and value >= 1
            yield "" if good else f"{field} is {value!r}, not a positive integer"
        if not re.fullmatch("[0-9a-f]{64}", card.digest):
            yield "digest is not a sha256 in hexadecimal; take the reader's"
        yield "" if card.family else "family has no name"

    @_promise("encode gives finite float32 latents as wide as the card says")
    def _encodes(self) -> Problems:
        yield self._wrong(self._model.encode(self._frames))

    @_promise("predict_next works for every history up to the card's")
    def _predicts(self) -> Problems:
        for length in range(1, self._card.history + 1):
            window = self._latents[:, :length], self._blocks[:, :length]
            found, again = self._predict(*window), self._predict(*window)
            wrong = self._wrong(found)
            yield wrong and f"history {length}: {wrong}"
            same = "" if torch.equal(found, again) else "not the same again; in eval mode?"
            yield same and f"history {length}: {same}"

    @_promise("encode and predict_next give the same again: no dropout, eval mode")
    def _repeats(self) -> Problems:
        for compute, given in (
            (self._model.encode, (self._frames,)),
            (self._predict, self._window),
        ):
            first, second = (compute(*given) for _ in range(2))
            yield "" if torch.equal(first, second) else f"off by {_gap(first, second):.1e}"

    @_promise("latents and predictions do not depend on the rows beside them")
    def _alone(self) -> Problems:
        rows = range(FRAMES)
        encoded = torch.cat([self._model.encode(self._frames[row, None]) for row in rows])
        yield _apart(self._model.encode(self._frames), encoded)
        alone = [self._predict(*(x[row, None] for x in self._window)) for row in rows]
        yield _apart(self._predict(*self._window), torch.cat(alone))

    @_promise("embed_actions keeps time: a block's embedding is its own")
    def _embeds(self) -> Problems:
        together = self._model.embed_actions(self._blocks)
        if together.shape[:2] != self._blocks.shape[:2] or together.ndim != 3:
            yield f"{list(self._blocks.shape)} became {list(together.shape)}"
        alone = [self._model.embed_actions(block[:, None]) for block in self._blocks.unbind(1)]
        yield _apart(together, torch.cat(alone, dim=1))

    @_promise("predict_next sees the last latent, the last action, and proprioception")
    def _listens(self) -> Problems:
        plain = self._predict(*self._window)
        for place, name in enumerate(("last latent", "last action")):
            given = [x.clone() for x in self._window]
            given[place][:, -1] += 1.0
            same = torch.equal(self._predict(*given), plain)
            yield f"another {name} gives the same prediction" if same else ""
        model, width = self._model, self._card.proprio_dim
        if not width:
            return
        if not isinstance(model, TakesProprio):
            yield f"proprio_dim is {width}, but there is no embed_proprio"
            return
        slots = model.embed_proprio(self._proprio)
        latents, blocks = (x[:, :1] for x in self._window)
        own, other = (
            self._predict(with_proprio(latents, x[:, None]), blocks) for x in (slots, slots + 1.0)
        )
        yield "another proprioception gives the same prediction" if torch.equal(own, other) else ""
        yield _apart(slots[:1], model.embed_proprio(self._proprio[:1]))

    @_promise("inputs are left as they were, and results need no gradient")
    def _touches_nothing(self) -> Problems:
        inputs = self._frames, self._latents, self._blocks
        before = [x.clone() for x in inputs]
        results = [self._model.encode(self._frames), self._model.embed_actions(self._blocks)]
        results.append(self._predict(*self._window))
        same = all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True))
        yield "" if same else "an input was written to"
        with torch.inference_mode(False), torch.enable_grad():
            results.append(self._model.encode(before[0].clone()))
        if any(x.requires_grad for x in results):
            yield "a result requires grad; freeze the parameters and use no_grad"

    @_promise("a rollout is the step-by-step loop, and a pool its candidates one by one")
    def _rolls_out(self) -> Problems:
        for length in range(1, self._card.history + 1):
            latents, blocks = self._latents[:, :length], self._blocks[:, : length + HORIZON - 1]
            rolled = rollout(self._model, latents, blocks)[:, : self._looped]
            wrong = _apart(rolled, self._loop(latents, blocks))
            yield wrong and f"history {length}: {wrong}"
        for count in (1, 2):  # for all histories, and for half of them each
            past, pools = self._blocks[:count, : self._card.history - 1], self._pools[:count]
            found = rollout_pool(self._model, self._latents, past, pools)
            each = torch.cat([past[:, None].expand(-1, CANDIDATES, -1, -1), pools], dim=2)
            blocks = each.repeat_interleave(FRAMES // count, dim=0)  # (frames, candidates, ...)
            rows = [self._loop(self._latents, one) for one in blocks.unbind(1)]
            wrong = _apart(found[:, :, : self._looped], torch.stack(rows, dim=1))
            yield wrong and f"{count} pools: {wrong}"

    @_promise("forward-mode derivatives pass (sensitivity study)")
    def _differentiates(self) -> Problems:
        with forward_derivatives():
            frames = self._frames.clone()
            dual = forward_ad.make_dual(frames, torch.ones_like(frames))  # type: ignore[no-untyped-call]
            encoded = self._model.encode(dual)
            predicted = self._predict(encoded[:, None], self._blocks[:, :1].clone())
            parts = forward_ad.unpack_dual(predicted)  # type: ignore[no-untyped-call]
            passed = parts.tangent is not None
        yield "" if passed else "none came out; use no_grad, not inference_mode"

    def _wrong(self, found: Tensor) -> str:
        """What is wrong with latents of all frames."""
        shape, device = (FRAMES, self._card.latent_dim), self._model.device
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
