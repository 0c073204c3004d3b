"""Computes a small network on a device, in every numeric mode, beside float64 on the CPU."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import structlog
import torch
from acpc.contract import NumericMode
from torch import Tensor

from acpc_server.engine.accelerator import device_name, to_device, to_host
from acpc_server.engine.arithmetic import arithmetic, in_mode, latent_dtype
from acpc_server.errors import DeviceFailed, FailedPrecondition, shortage
from acpc_server.models import FrozenJepa, FrozenWorldModel, rollout_pool, sample_model

log = structlog.get_logger("acpc.engine")
# Largest error of a mode, relative to the largest number of the answer. Float32 that is multiplied
# in TF32 by mistake is off by some 1e-3.
TOLERANCES = {
    NumericMode.FP64: 1e-9,
    NumericMode.FP32: 1e-4,
    NumericMode.TF32: 2e-2,
    NumericMode.BF16: 1e-1,
}
FRAMES, STEPS, CANDIDATES = 4, 3, 8


def self_test(device: torch.device, modes: Iterable[NumericMode] = ()) -> dict[NumericMode, str]:
    """Encode frames and roll out a pool in ``modes``, by default all; return what is wrong.

    Only modes that the device has and fails at are in the answer: by a wrong number, or by an
    error. Raises what torch raises for want of memory, which is no fault.
    """
    missing = NumericMode.TF32 if device.type == "cpu" else None
    wrong = {}
    for mode in modes or [mode for mode in TOLERANCES if mode is not missing]:
        try:
            with arithmetic(mode, device):
                found = _answers(in_mode(_sample(device), mode), device, latent_dtype(mode))
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError) or shortage(error) is not None:
                raise
            wrong[mode] = f"{type(error).__name__}: {error}"
            continue
        for worst in map(_apart, found, _wanted()):
            if not worst <= TOLERANCES[mode]:  # NaN is not
                wrong[mode] = f"off by {worst:.1e}, and may by {TOLERANCES[mode]:.0e}"
    return wrong


def require_device(device: torch.device) -> None:
    """Raise DeviceFailed where the device fails in float32, before anything else computes on it."""
    try:
        failing = self_test(device, [NumericMode.FP32])
    except (RuntimeError, MemoryError) as error:
        log.warning("device_not_tested", why=str(error))
        return
    for mode, why in failing.items():
        raise DeviceFailed(f"{device_name(device)} fails its self-test: {mode!s} is {why}")


class OtherModes:
    """The modes of a device beside float32, tried when first computed in; for its thread only."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tried: dict[NumericMode, str] = {}

    def require(self, mode: NumericMode) -> None:
        """Raise FailedPrecondition where the device fails at a mode; as :func:`self_test`."""
        if mode is NumericMode.FP32:
            return
        if mode not in self._tried:
            self._tried[mode] = self_test(self._device, [mode]).get(mode, "")
            if self._tried[mode]:
                log.error("numeric_mode_turned_off", mode=str(mode), why=self._tried[mode])
        if why := self._tried[mode]:
            raise FailedPrecondition(
                f"numeric_mode {mode!s} is turned off on this server: on "
                f"{device_name(self._device)} it is {why}; ask for another mode, or have the "
                "operator run acpc-server doctor",
                reason="NUMERIC_MODE_OFF",
            )


@cache
def _sample(device: torch.device) -> FrozenJepa:
    return sample_model(device)


@cache
def _wanted() -> list[Tensor]:
    with torch.inference_mode():
        cpu = torch.device("cpu")
        return _answers(_sample(cpu).in_float64(), cpu, torch.float64)


def _answers(model: FrozenWorldModel, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """Latents of frames, and predictions of a pool, of the same inputs every time."""
    card, generator = model.card, torch.Generator().manual_seed(1)
    frames, histories, past, pools = to_device(
        device, dtype,
        *(torch.randn(*shape, generator=generator) for shape in (
            (FRAMES, 3, card.image_size, card.image_size),
            (2, card.history, card.latent_dim),
            (card.history - 1, card.action_block_dim),
            (1, CANDIDATES, STEPS, card.action_block_dim),
        )),
    )  # fmt: skip
    answers = model.encode(frames), rollout_pool(model, histories, past, pools)
    return [to_host(answer) for answer in answers]


def _apart(found: Tensor, wanted: Tensor) -> float:
    """Largest difference, relative to the largest number that is wanted."""
    return float((found.double() - wanted).abs().max() / wanted.abs().max())
