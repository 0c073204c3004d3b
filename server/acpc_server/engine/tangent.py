"""Forward-mode derivative of encoder and rollout along a direction of the frames."""

from __future__ import annotations

import threading
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from acpc_server.errors import FailedPrecondition
from acpc_server.models import FrozenWorldModel, rollout

_LOADING = threading.Lock()  # forward mode has one level of differentiation per process


def load_derivatives() -> None:
    """Have torch load its forward derivatives, which takes it up to seconds, once in a process.

    Call it before :func:`rollout_tangent`, in a thread that may block; the device's may not.
    """
    with _LOADING:
        _load_derivatives()


@cache
def _load_derivatives() -> None:
    point = torch.ones(1, 2)
    with torch.no_grad(), forward_ad.dual_level():
        F.layer_norm(forward_ad.make_dual(point, point), (2,))  # type: ignore[no-untyped-call]


def rollout_tangent(
    model: FrozenWorldModel,
    histories: Float[Tensor, "n history 3 height width"],
    directions: Float[Tensor, "n history 3 height width"],
    blocks: Float[Tensor, "n steps block_width"],
) -> Float[Tensor, "n horizon dim"]:
    """Jacobian-vector product of the predicted latents with ``directions`` of normalised frames.

    Raises:
        FailedPrecondition: The model's family hides the derivative.
    """
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        sdpa_kernel(SDPBackend.MATH),  # fused attention has no forward derivative
        forward_ad.dual_level(),
    ):
        # Copies: tensors made in inference mode carry no derivative.
        dual = forward_ad.make_dual(  # type: ignore[no-untyped-call]
            histories.clone(), directions.clone()
        )
        latents = model.encode(dual.flatten(0, 1)).reshape(*histories.shape[:2], -1)
        predicted = rollout(model, latents, blocks.clone())  # (n, horizon, dim)
        parts = forward_ad.unpack_dual(predicted)  # type: ignore[no-untyped-call]
        tangent: Tensor | None = parts.tangent
    if tangent is None:
        raise FailedPrecondition(
            f"checkpoints of family {model.card.family!r} give no forward-mode derivative; their "
            "encode and predict_next must work under torch.no_grad, not torch.inference_mode",
            reason="NO_FORWARD_DERIVATIVE",
        )
    return tangent
