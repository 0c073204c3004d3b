"""The arithmetic a network may run in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from acpc.contract import NumericMode

from acpc_server.engine.accelerator import computes_float64, computes_tf32
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.models import FrozenWorldModel, Widens

# Modes at which a device of this process has failed, and how.
TURNED_OFF: dict[tuple[torch.device, NumericMode], str] = {}


def turn_off(mode: NumericMode, device: torch.device, why: str) -> None:
    """Have :func:`require_mode` refuse a mode of ``device`` from now on."""
    TURNED_OFF[device, mode] = why


def require_mode(mode: NumericMode, device: torch.device, model: FrozenWorldModel) -> None:
    """Refuse a mode that ``device`` or ``model`` cannot compute in.

    Raises:
        InvalidArgument: One of them has no such mode.
        FailedPrecondition: The device has it and failed at it when it was tried.
    """
    if (why := TURNED_OFF.get((device, mode))) is not None:
        raise FailedPrecondition(
            f"numeric_mode {mode!s} is turned off on this server: {why}; ask for another mode, or "
            "have the operator run acpc-server doctor",
            reason="NUMERIC_MODE_OFF",
        )
    if mode is NumericMode.TF32 and not computes_tf32(device):
        raise InvalidArgument(
            "numeric_mode", f"tf32 needs a CUDA device, the server runs on {device.type}"
        )
    if mode is NumericMode.FP64 and not computes_float64(device):
        raise InvalidArgument("numeric_mode", f"{device.type} has no float64; use fp32")
    if mode is NumericMode.FP64 and not isinstance(model, Widens):
        raise InvalidArgument(
            "numeric_mode", f"family {model.card.family} has no float64; use fp32"
        )


def latent_dtype(mode: NumericMode) -> torch.dtype:
    """The type of frames and latents that enter and leave a network that computes in ``mode``."""
    return torch.float64 if mode is NumericMode.FP64 else torch.float32


@contextmanager
def arithmetic(mode: NumericMode, device: torch.device) -> Iterator[None]:
    """Run the block without gradients and in ``mode``; only the device's owner may call it."""
    torch.backends.cuda.matmul.allow_tf32 = mode is NumericMode.TF32
    torch.backends.cudnn.allow_tf32 = mode is NumericMode.TF32
    with (
        torch.inference_mode(),
        torch.autocast(device.type, torch.bfloat16, enabled=mode is NumericMode.BF16),
    ):
        yield
