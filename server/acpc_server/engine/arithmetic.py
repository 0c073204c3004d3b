"""The arithmetic a network may run in, its forward-mode derivative, and rows that are equal.

The last bits of a float32 row depend on its place in a batch, on the batch's size and on the number
of threads. Rows with equal inputs therefore share the first one's answer. They stay in the batch,
so that the bits of every other row are the same with and without equal rows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache

import numpy as np
import torch
from acpc.contract import NumericMode
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from acpc_server.errors import FailedPrecondition, InvalidArgument, parsing
from acpc_server.models import (
    FrozenNetwork,
    FrozenWorldModel,
    Widens,
    forward_derivatives,
    rollout,
)

_LOADING = threading.Lock()


def require_mode(mode: NumericMode, device: torch.device, model: FrozenWorldModel) -> None:
    """Raise InvalidArgument for a mode that ``device`` or ``model`` does not have.

    Whether the device computes in it as it should is tried at its first use, by its thread.
    """
    if mode is NumericMode.TF32 and device.type == "cpu":
        raise InvalidArgument(
            "numeric_mode", f"tf32 needs a CUDA device, the server runs on {device.type}"
        )
    if mode is NumericMode.FP64 and not isinstance(model, Widens):
        raise InvalidArgument(
            "numeric_mode", f"family {model.card.family} has no float64; use fp32"
        )


def equal_rows(*columns: Tensor) -> Tensor | None:
    """Return for each row the first row that equals it in every column, int64 (n,).

    None where no two rows are equal. ``columns`` are float32 on the CPU, (n, ...) each.
    """
    head = np.sort(columns[0].flatten(1)[:, 0].numpy())
    if not (head[1:] == head[:-1]).any():  # what nearly every call finds, in microseconds
        return None
    # Adding 0 turns -0 into 0, so that equal numbers are equal bytes.
    joined = (torch.cat([column.flatten(1) for column in columns], dim=1) + 0.0).numpy()
    first = first_equal(joined)
    return None if (first == np.arange(len(first))).all() else torch.from_numpy(first)


def first_equal(rows: np.ndarray) -> np.ndarray:
    """Return for each row of an array in one piece the first row of equal bytes, int64 (n,)."""
    flat = rows.reshape(len(rows), -1)
    _, first, inverse = np.unique(
        flat.view(np.dtype((np.void, flat.strides[0])))[:, 0],
        return_index=True,
        return_inverse=True,
    )
    return first[inverse]


def latent_dtype(mode: NumericMode) -> torch.dtype:
    """Return the type of a network's frames and latents in ``mode``."""
    return torch.float64 if mode is NumericMode.FP64 else torch.float32


def in_mode(model: FrozenWorldModel, mode: NumericMode) -> FrozenWorldModel:
    """Return the model, or its copy with weights in the type of a mode; in fp64 a new one.

    A plug-in's model that hands what it lacks on to one of ours is no such network itself.
    """
    if mode is NumericMode.BF16 and isinstance(model, FrozenNetwork):
        return model.in_bfloat16()
    if mode is NumericMode.FP64 and isinstance(model, Widens):
        return model.in_float64()
    return model


@contextmanager
def arithmetic(mode: NumericMode, device: torch.device) -> Iterator[None]:
    """Run the block without gradients and in ``mode``, in the device's thread."""
    if device.type != "cpu":
        torch.backends.cuda.matmul.allow_tf32 = mode is NumericMode.TF32
        torch.backends.cudnn.allow_tf32 = mode is NumericMode.TF32
    reduced = mode is NumericMode.BF16
    with (
        torch.inference_mode(),
        torch.autocast(device.type, torch.bfloat16) if reduced else nullcontext(),
    ):
        yield


def load_derivatives() -> None:
    """Load torch's forward derivatives, once a process; takes seconds.

    Call it before :func:`rollout_tangent`, in a thread that may block; the device's may not.
    """
    with _LOADING:  # forward mode has one level per process
        parsing(_load_derivatives)


@cache
def _load_derivatives() -> None:
    point = torch.ones(1, 2)
    with torch.no_grad(), forward_ad.dual_level():
        dual = forward_ad.make_dual(point, point)  # type: ignore[no-untyped-call]
        F.linear(F.layer_norm(dual, (2,)), point, point[:, 0])


def rollout_tangent(
    model: FrozenWorldModel,
    histories: Float[Tensor, "n history 3 height width"],
    directions: Float[Tensor, "n history 3 height width"],
    blocks: Float[Tensor, "n steps block_width"],
) -> Float[Tensor, "n horizon dim"]:
    """Compute the Jacobian-vector product of predicted latents with directions of the frames.

    Raises FailedPrecondition: The model's family hides the derivative.
    """
    with forward_derivatives():
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
