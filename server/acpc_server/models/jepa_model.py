"""The world model of LeWM and PLDM, which differ in how they are trained, not in what they compute.

It rolls out in as few operations as it takes: what a step takes depends on the number of operations
rather than on arithmetic, for a history as for a small pool. So weights are read once into plain
tuples: no module is called in a step, a batch norm is part of the map before it, a latent becomes a
token once, what actions do to all layers at all steps is one product, the last layer computes its
last token alone, and steps lead every axis, so that windows and modulations are slices without
copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from acpc_server.errors import InvalidArgument
from acpc_server.models.jepa import MODULATION_EPS, Embedder, Predictor, ProjectionMlp
from acpc_server.models.vit import ViT

Affine: TypeAlias = tuple[Tensor, Tensor | None]
# Norm before attention, qkv, output map, norm before the MLP, its two maps.
PARTS = ("attn.norm", "attn.to_qkv", "attn.to_out.0", "mlp.net.0", "mlp.net.1", "mlp.net.4")
Layer: TypeAlias = tuple[Affine, Affine, Affine | None, Affine, Affine, Affine]
# A map, the layer norm after it, and a map.
Head: TypeAlias = tuple[Affine, Affine | None, Affine]
# Positions (t, 1, 1, hidden), layers, norm, output map, head.
Weights: TypeAlias = tuple[Tensor, tuple[Layer, ...], Affine, Affine | None, Head | None]
Step: TypeAlias = Callable[[Tensor, Tensor], Tensor]
NORM_EPS = 1e-5
# Rows x heads from which attention over a window's few tokens takes half the time by its elements;
# below, the fused kernel's fewer operations win.
BY_ELEMENT = 256
# Inputs of a float32 product with few rows and outputs from which it is computed in so many parts:
# as a whole it occupies a third of a large GPU (M = 384, N = 192: 40 us against 21).
LONG, PARTS_OF_LONG = 1024, 8


class Form(NamedTuple):
    """What a step's weights do not say."""

    heads: int
    activation: str = ""  # of the head, a function of torch.nn.functional
    eps: float = 0.0  # of the head's layer norm


_captured = False


@contextmanager
def captured_form() -> Iterator[None]:
    """Compute in the form for a captured graph, in the device's thread.

    A launch costs nothing there, so that more kernels of less time are faster. Elsewhere a launch
    of a GPU costs more than most kernels.
    """
    global _captured  # noqa: PLW0603 - one thread computes
    _captured = True
    try:
        yield
    finally:
        _captured = False


class JepaModel(nn.Module):
    """Encoder and predictor in one projected latent space.

    Observations become ``projector(CLS)`` and predictions ``pred_proj(predictor)``; planner costs
    and every distance of the paper live in that space. Attribute names give the state dict the
    public layout. It can be trained; for inference see ``frozen.FrozenJepa``.
    """

    def __init__(
        self,
        encoder: ViT,
        predictor: Predictor,
        action_encoder: Embedder,
        projector: nn.Module | None = None,
        pred_proj: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.predictor = predictor
        self.action_encoder = action_encoder
        self.projector = projector if projector is not None else nn.Identity()
        self.pred_proj = pred_proj if pred_proj is not None else nn.Identity()

    def check_frames(self, height: int, width: int) -> None:
        """Raise InvalidArgument for frames smaller than one patch."""
        patch = self.encoder.patch_size
        if min(height, width) < patch:
            raise InvalidArgument(
                "frames",
                f"height {height} and width {width}; the encoder's patches are {patch} pixels a "
                "side",
            )

    def encode(self, frames: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n dim"]:
        """Projected latents of normalised frames."""
        return self.projector(self.encoder(frames))

    def embed_actions(self, blocks: Float[Tensor, "b t block"]) -> Float[Tensor, "b t emb"]:
        """Embeddings of normalised action blocks."""
        return self.action_encoder(blocks)

    def predict(
        self, latents: Float[Tensor, "b t dim"], actions: Float[Tensor, "b t emb"]
    ) -> Float[Tensor, "b t dim"]:
        """Predict for every token the projected latent that follows it (training)."""
        rollout = JepaRollout(self)
        modulations = rollout.modulate(actions.transpose(0, 1)[:, :, None])
        weights, window = (*rollout.weights[:4], None), rollout.tokens(latents.transpose(0, 1))
        tokens = predict_step(weights, rollout.form, window[:, None], modulations, every=True)
        projected: Tensor = self.pred_proj(tokens[:, 0].transpose(0, 1).flatten(0, 1))
        return projected.view(*latents.shape[:2], -1)


class JepaRollout:
    """The predictor of a network in eval mode; keeps its weights as they are now.

    Attributes:
        form, weights: What :func:`predict_step` takes.
        compiled: Computes steps of whole windows while it is set: the same function, compiled.
    """

    def __init__(self, network: JepaModel) -> None:
        predictor, transformer = network.predictor, network.predictor.transformer
        self._embed, self._condition = network.action_encoder, transformer.cond_proj
        self._window = predictor.num_frames
        tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}

        def affine(name: str) -> Any:  # noqa: ANN401 - None where the network has no such map
            weight = tensors.get(f"{name}.weight")
            return None if weight is None else (weight, tensors.get(f"{name}.bias"))

        at, head, activation, eps = "predictor.transformer", None, "", 0.0
        if isinstance(network.pred_proj, ProjectionMlp):
            _, norm, nonlinear, _ = network.pred_proj.net
            activation, eps = type(nonlinear).__name__.lower(), getattr(norm, "eps", 0.0)
            rise, normed = affine("pred_proj.net.0"), affine("pred_proj.net.1")
            if isinstance(norm, nn.BatchNorm1d):
                rise, normed = _folded(rise, norm), None
            head = rise, normed, affine("pred_proj.net.3")
        layers = [f"{at}.layers.{index}" for index in range(len(transformer.layers))]
        self.form = Form(transformer.layers[0].attn.heads, activation, eps)  # type: ignore[arg-type, union-attr]
        positions, self._into = predictor.pos_embedding[0, :, None, None], None
        if (into := affine(f"{at}.input_proj")) is not None:
            self._into, (weight, bias) = into[0], (x.double() for x in into)
            positions = F.linear(positions.double(), weight, bias).to(positions)
        self.weights: Weights = (
            positions,
            tuple(tuple(affine(f"{layer}.{part}") for part in PARTS) for layer in layers),
            affine(f"{at}.norm"),
            affine(f"{at}.output_proj"),
            head,
        )
        self.compiled: Step | None = None
        maps = [affine(f"{layer}.adaLN_modulation.1") for layer in layers]
        biases = torch.stack([bias for _, bias in maps])
        shifted = biases.view(len(maps), 6, -1)  # a copy already
        shifted[:, 1::3] += 1.0  # scales multiply by 1 + what is computed
        self._modulation = torch.cat([weight for weight, _ in maps]), shifted.flatten()

    def unroll(
        self,
        histories: Float[Tensor, "v h dim"],
        past: Float[Tensor, "p past width"],
        future: Float[Tensor, "p j horizon width"],
    ) -> Float[Tensor, "v j horizon dim"]:
        """Roll every history forward under every action sequence of its pool, one of ``p``.

        Equal to predicting window by window; see :func:`acpc_server.models.rollout.rollout` for
        which latents and blocks meet at a step. Every step is one call of :meth:`step` for all
        rows; what actions do to the layers is computed once for all steps and views.
        """
        (v, h, _), (p, j, horizon, _) = histories.shape, future.shape
        blocks = torch.cat([past[:, None].expand(-1, j, -1, -1), future], dim=2)
        modulations = self.modulate(self._embed(blocks.permute(2, 0, 1, 3)))
        runs = histories.transpose(0, 1).reshape(h, p, v // p, -1).transpose(1, 2)
        rows = runs[:, :, :, None].expand(-1, -1, -1, j, -1).flatten(2, 3)  # (h, v / p, p * j, dim)
        tokens, latents = list(self.tokens(rows).unbind(0)), list[Tensor]()
        for end in range(h, h + horizon):
            if latents:
                tokens.append(self.tokens(latents[-1]))
            start = max(0, end - self._window)
            window = torch.stack(tokens[start:])
            whole = end - start == self._window
            step = self.compiled if self.compiled and whole else self.step
            latents.append(step(window, modulations[start:end]))
        found = torch.stack(latents, dim=2).view(v // p, p, j, horizon, -1)
        return found.transpose(0, 1).reshape(v, j, horizon, -1)

    def modulate(self, embedded: Float[Tensor, "t p j emb"]) -> Float[Tensor, "t parts 1 n hidden"]:
        """Shifts, scales and gates, six a layer, under the embedded blocks of p x j rows."""
        found = F.linear(F.silu(self._condition(embedded)), *self._modulation).flatten(1, 2)
        parts = found.view(*found.shape[:2], 6 * len(self.weights[1]), -1)
        # In the type of what they change, once: each of their uses would convert them.
        return parts.transpose(1, 2).to(self.weights[0].dtype).contiguous().unsqueeze(2)

    def tokens(self, latents: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows hidden"]:
        """Tokens without their positions, to which the input map's bias belongs."""
        return latents if self._into is None else F.linear(latents, self._into)

    def predict_next(
        self, latents: Float[Tensor, "b t dim"], actions: Float[Tensor, "b t emb"]
    ) -> Float[Tensor, "b dim"]:
        """Predict the latent that follows the last one, under embedded action blocks."""
        modulations = self.modulate(actions.transpose(0, 1)[:, :, None])
        return self.step(self.tokens(latents.transpose(0, 1))[:, None], modulations)[0]

    def step(
        self,
        window: Float[Tensor, "t g n hidden"],
        modulations: Float[Tensor, "t parts 1 n hidden"],
    ) -> Float[Tensor, "g n dim"]:
        """Predict the latent after each window of ``t`` tokens, operation by operation."""
        return predict_step(self.weights, self.form, window, modulations)


def predict_step(
    weights: Weights,
    form: Form,
    window: Float[Tensor, "t g n hidden"],
    modulations: Float[Tensor, "t parts 1 n hidden"],
    by_element: int = BY_ELEMENT,
    every: bool = False,
) -> Float[Tensor, "*t g n dim"]:
    """Predict the latent after each window, or after every token of it.

    ``by_element`` is as :data:`BY_ELEMENT`.
    """
    positions, layers, norm, out, head = weights
    x = window + positions[: window.shape[0]]
    width, parts = x.shape[-1:], modulations.unbind(1)
    if not every:  # the last layer computes the last token
        parts = *parts[:-4], *modulations[-1:, -4:].unbind(1)
    later: Tensor | None = None
    for index, (attention_norm, qkv, mix, mlp_norm, rise, fall) in enumerate(layers):
        last = index == len(layers) - 1 and not every
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = parts[6 * index : 6 * index + 6]
        normed = torch.addcmul(shift, torch.layer_norm(x, width, eps=MODULATION_EPS), scale)
        normed = torch.layer_norm(normed, width, *attention_norm, NORM_EPS)
        mapped = F.linear(normed, *qkv)
        if later is None and _by_its_elements(mapped, form.heads, by_element):
            later = mapped.new_full((len(x), len(x)), -math.inf).triu(1)[:, :, None, None]
        mixed = _attend(mapped, form.heads, last, later)
        mixed = mixed if mix is None else _long(mixed, *mix)
        x = torch.addcmul(x[-1:] if last else x, gate, mixed)
        normed = torch.addcmul(mlp_shift, torch.layer_norm(x, width, eps=MODULATION_EPS), mlp_scale)
        normed = torch.layer_norm(normed, width, *mlp_norm, NORM_EPS)
        changed = _long(F.gelu(F.linear(normed, *rise)), *fall)
        x = torch.addcmul(x, mlp_gate, changed)
    found = torch.layer_norm(x if every else x[0], width, *norm, NORM_EPS)
    found = found if out is None else F.linear(found, *out)
    return found if head is None else _project(found, head, form)


def _long(
    x: Float[Tensor, "*rows inputs"], weight: Tensor, bias: Tensor | None
) -> Float[Tensor, "*rows outputs"]:
    """Map rows as ``F.linear`` does, in a captured graph in parts of many inputs."""
    inputs, single = x.shape[-1], x.dtype is torch.float32
    if not (_captured and single and inputs >= LONG) or inputs % PARTS_OF_LONG:
        return F.linear(x, weight, bias)
    parts = (each.reshape(-1, PARTS_OF_LONG, inputs // PARTS_OF_LONG) for each in (x, weight))
    left, right = (each.transpose(0, 1) for each in parts)  # (parts, rows, share of the inputs)
    found = torch.bmm(left, right.mT).sum(0)
    return (found if bias is None else found.add_(bias)).view(*x.shape[:-1], -1)


def _by_its_elements(qkv: Float[Tensor, "t g n three"], heads: int, most: int) -> bool:
    """Whether attention is computed by its elements, from ``most`` rows x heads on."""
    may = (_captured or qkv.is_cpu) and qkv.dtype is not torch.bfloat16
    return may and qkv.shape[1] * qkv.shape[2] * heads >= most


def _attend(
    qkv: Float[Tensor, "t g n three"], heads: int, last: bool, later: Tensor | None
) -> Float[Tensor, "q g n inner"]:
    """Mix values causally: for each token, or for the last alone.

    By elements where there is ``later``: minus infinity where a token is later than the one that
    asks, (t, t, 1, 1).
    """
    t, g, n, _ = qkv.shape
    each = qkv.view(t, g * n, 3, heads, -1)
    if later is not None:
        mixed = _by_element(each, None if last else later)  # (q, rows, heads, d)
    else:
        q, k, v = each.permute(2, 1, 3, 0, 4).unbind(0)  # (rows, heads, t, d)
        q = q[:, :, -1:] if last else q
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=not last).permute(2, 0, 1, 3)
    return mixed.reshape(-1, g, n, qkv.shape[-1] // 3)


def _by_element(
    tokens: Float[Tensor, "t rows 3 heads d"], later: Tensor | None
) -> Float[Tensor, "q rows heads d"]:
    """Compute attention of few tokens by its elements."""
    q, k, v = tokens.unbind(2)
    q = q[-1:] if later is None else q
    scores = (q[:, None] * k).sum(-1) * tokens.shape[-1] ** -0.5  # (q, t, rows, heads)
    scores = scores if later is None else scores + later
    return (torch.softmax(scores, 1)[..., None] * v).sum(1)


def _project(x: Float[Tensor, "g n dim"], head: Head, form: Form) -> Float[Tensor, "g n out"]:
    """Compute what :class:`acpc_server.models.jepa.ProjectionMlp` does."""
    rise, norm, fall = head
    x = F.linear(x, *rise)
    x = x if norm is None else torch.layer_norm(x, x.shape[-1:], *norm, form.eps)
    return F.linear(getattr(F, form.activation)(x), *fall)


def _folded(affine: tuple[Tensor, Tensor], norm: nn.BatchNorm1d) -> Affine:
    """A map with the batch norm after it, in eval mode; joined in float64."""
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None and variance is not None  # noqa: S101 - as configs have it
    weight, bias = (x.double() for x in affine)
    scale = norm.weight.double() / (variance.double() + norm.eps).sqrt()
    moved = (bias - mean.double()) * scale + norm.bias.double()
    return (weight * scale[:, None]).to(affine[0]), moved.to(affine[1])
