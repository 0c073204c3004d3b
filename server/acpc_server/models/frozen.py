"""Frozen world models and their cards: the form in which the server uses a checkpoint."""

from __future__ import annotations

import copy
import threading
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from acpc.contract import ModelCard
from jaxtyping import Float
from torch import Tensor, nn

from acpc_server.errors import InvalidArgument
from acpc_server.models.jepa_model import JepaModel, JepaRollout
from acpc_server.models.prejepa import PreJepaModel
from acpc_server.models.vit import SelfAttention

Network = TypeVar("Network", bound=nn.Module)
Frozen = TypeVar("Frozen", bound="FrozenNetwork[Any]")
# What autocast computes in bfloat16 here, and so casts the weights of.
PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d)


@runtime_checkable
class FrozenWorldModel(Protocol):
    """A model in eval mode without gradients, as plug-in families return one.

    The engine calls it in inference mode; the model itself uses ``torch.no_grad``, which leaves
    forward-mode derivatives to the sensitivity study.
    """

    @property
    def card(self) -> ModelCard:
        """Facts of the checkpoint."""

    @property
    def device(self) -> torch.device:
        """The device on which inputs must lie."""

    def encode(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n dim"]:
        """Projected latents of normalised, resized frames."""

    def embed_actions(self, blocks: Float[Tensor, "b t width"]) -> Float[Tensor, "b t emb"]:
        """Embeddings of normalised action blocks."""

    def predict_next(
        self, latents: Float[Tensor, "b t dim"], actions: Float[Tensor, "b t emb"]
    ) -> Float[Tensor, "b dim"]:
        """Projected latent that follows the last of at most ``card.history`` latents."""


@runtime_checkable
class Widens(Protocol):
    """A model that can compute in float64 too, for the mode fp64 and for rounding floors."""

    def in_float64(self) -> FrozenWorldModel:
        """A copy with every weight in float64, for inputs and answers in float64."""


@runtime_checkable
class TakesProprio(Protocol):
    """A model whose frames come with proprioception, of width ``card.proprio_dim``.

    It may keep more of a predicted frame than a latent holds, and so rolls out by itself
    (:class:`acpc_server.models.rollout.Unrolls`).
    """

    @property
    def proprio_slot(self) -> int:
        """Coordinates of proprioception in a latent; 0 where frames come without."""

    def embed_proprio(self, proprio: Float[Tensor, "n width"]) -> Float[Tensor, "n slot"]:
        """Last coordinates of latents, which :meth:`encode` leaves zero, of normalised rows."""


class FrozenNetwork(Generic[Network]):
    """A network in eval mode without gradients, its card, and its copies in other types."""

    def __init__(self, network: Network, card: ModelCard, device: torch.device) -> None:
        self._network = network.to(device).eval().requires_grad_(False)
        for module in network.modules():
            if isinstance(module, SelfAttention):
                module.freeze()
        self.card = card
        self.device = device  # on which inputs must lie
        self._reduced: Any = None
        self._reducing = threading.Lock()
        self.reduced_bytes = 0  # that its copy in bfloat16 takes, beside the model's own

    def in_bfloat16(self: Frozen) -> Frozen:
        """This model with the weights of its products in bfloat16, for calls under autocast.

        Made once, then kept; without derivatives.
        """
        with self._reducing:
            if self._reduced is None:
                network = copy.deepcopy(self._network)
                for module in network.modules():
                    if isinstance(module, PRODUCTS):
                        module.to(torch.bfloat16)
                self.reduced_bytes = sum(x.nbytes for x in network.state_dict().values())
                self._reduced = type(self)(network, self.card, self.device)
            reduced: Frozen = self._reduced
            return reduced

    def in_float64(self: Frozen) -> Frozen:
        """A copy with every weight in float64."""
        return type(self)(copy.deepcopy(self._network).double(), self.card, self.device)


class FrozenJepa(FrozenNetwork[JepaModel | PreJepaModel]):
    """A LeWM or PLDM network as a FrozenWorldModel."""

    @property
    def network(self) -> JepaModel | PreJepaModel:
        """The network behind it."""
        return self._network

    @torch.no_grad()
    def encode(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n dim"]:
        """Latents of normalised frames; of PreJEPA without their proprioception.

        Raises InvalidArgument: ``frames`` of a size that the network does not take.
        """
        self._network.check_frames(*frames.shape[-2:])
        return self._network.encode(frames)

    @torch.no_grad()
    def embed_actions(self, blocks: Float[Tensor, "b t width"]) -> Float[Tensor, "b t emb"]:
        """Embeddings of action blocks of width ``card.action_block_dim``."""
        return self._network.embed_actions(blocks)

    @torch.no_grad()
    def predict_next(
        self, latents: Float[Tensor, "b t dim"], actions: Float[Tensor, "b t emb"]
    ) -> Float[Tensor, "b dim"]:
        """Latent that follows the last of at most ``card.history`` latents of observed frames."""
        return self._unrolls.predict_next(latents, actions)

    @torch.no_grad()
    def unroll(
        self,
        histories: Float[Tensor, "v h dim"],
        past: Float[Tensor, "p past width"],
        future: Float[Tensor, "p j horizon width"],
    ) -> Float[Tensor, "v j horizon dim"]:
        """Every history forward under every action sequence of its pool."""
        return self._unrolls.unroll(histories, past, future)

    @property
    def steps(self) -> JepaRollout | None:
        """What computes its steps where a compiled program may; None: none may."""
        return None if isinstance(self._unrolls, PreJepaModel) else self._unrolls

    @cached_property
    def _unrolls(self) -> JepaRollout | PreJepaModel:
        network = self._network
        return network if isinstance(network, PreJepaModel) else JepaRollout(network)


class FrozenPreJepa(FrozenJepa):
    """A PreJEPA network as a FrozenWorldModel that takes proprioception."""

    _network: PreJepaModel

    @property
    def proprio_slot(self) -> int:
        """Coordinates that proprioception takes in a latent; 0 where frames come without."""
        return self._network.proprio

    @torch.no_grad()
    def embed_proprio(self, proprio: Float[Tensor, "n width"]) -> Float[Tensor, "n slot"]:
        """Last coordinates of latents, of proprioception of width ``card.proprio_dim``."""
        return self._network.embed_proprio(proprio)


def with_proprio(
    latents: Float[Tensor, "*n dim"], slots: Float[Tensor, "*n slot"]
) -> Float[Tensor, "*n dim"]:
    """Latents whose last coordinates are those of their frames' proprioception."""
    return torch.cat([latents[..., : -slots.shape[-1]], slots.to(latents)], dim=-1)


def check_proprio(card: ModelCard, proprio: tuple[int, ...] | None, field: str) -> None:
    """Raise InvalidArgument for proprioception (..., width) that is too much, missing or another.

    The message names ``field`` and both widths.
    """
    wanted, found = card.proprio_dim, None if proprio is None else proprio[-1]
    if found == (wanted or None):
        return
    if not wanted:
        problem = "the checkpoint takes no proprioception; leave it out"
    elif found is None:
        problem = (
            "missing; the checkpoint's frames come with proprioception of width "
            f"{wanted}, normalised as in training"
        )
    else:
        problem = f"width {found}, but the checkpoint's frames come with {wanted}"
    raise InvalidArgument(field, problem, reason="PROPRIO_MISMATCH")


def check_actions(card: ModelCard, *, frameskip: int, action_dim: int) -> None:
    """Raise InvalidArgument, ``frameskip``, for action blocks of another width than in training."""
    width = frameskip * action_dim
    if width != card.action_block_dim:
        raise InvalidArgument(
            "frameskip",
            f"frameskip {frameskip} x action width {action_dim} gives action blocks of width "
            f"{width}, but the checkpoint was trained on blocks of width "
            f"{card.action_block_dim}; use the frameskip the checkpoint was trained with",
            reason="ACTION_BLOCK_MISMATCH",
        )


def check_history(card: ModelCard, history: int) -> None:
    """Raise InvalidArgument, ``history``, where the predictor has no positions for it."""
    if not 1 <= history <= card.history:
        raise InvalidArgument(
            "history",
            f"{history} history frames, but the checkpoint's predictor takes 1 to {card.history}",
            reason="HISTORY_MISMATCH",
        )
