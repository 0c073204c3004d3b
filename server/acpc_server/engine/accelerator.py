"""What the server asks of a device, whichever kind of accelerator torch finds: CUDA, XPU, MPS.

All that differs between kinds, or between releases of torch, is here. Everything else says only on
which device a tensor is.
"""

from __future__ import annotations

import subprocess
from typing import Any

import torch
from torch import Tensor

from acpc_server.errors import FailedPrecondition

# Apple's GPUs compute in no float64, and share the memory of their host.
_NO_FLOAT64 = _NO_PINNING = frozenset({"mps"})
_TF32 = frozenset({"cuda"})


def choose_device(name: str, flag: str = "--device") -> torch.device:
    """The device that ``name`` means: a kind of accelerator, one of its devices, or ``auto``.

    ``auto`` is this machine's accelerator, if it can measure rounding in float64, and else the CPU.
    ``flag`` is where the name was given.

    Raises:
        FailedPrecondition: There is no such device; the message says what there is.
    """
    found = _accelerator()
    if name == "auto":
        chosen = found is not None and computes_float64(found)
        name = found.type if chosen and found is not None else "cpu"
    # Torch takes cuda:256 for cuda:0.
    kind, colon, number = name.partition(":")
    if kind == "cpu":
        return torch.device("cpu")
    count = torch.accelerator.device_count() if found and found.type == kind else 0
    if (colon and not number.isdecimal()) or int(number or 0) >= count:
        have = f"{count} of that kind" if count else f"only {found.type if found else 'the CPU'}"
        raise FailedPrecondition(f"{flag} {name}, but torch {torch.__version__} finds {have}")
    return torch.device(kind, int(number or 0))


def device_name(device: torch.device) -> str:
    """The device as an operator would say it, for example ``"cuda:0 NVIDIA H200"``."""
    named = getattr(_module(device), "get_device_name", None)
    return f"{device} {named(device)}" if named else str(device)


def software(device: torch.device) -> str:
    """Releases of what computes on the device: runtime and driver, or instructions and threads."""
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"{torch.backends.cpu.get_cpu_capability()}, {threads} threads"
    told = [f"{name} {found}" for name in ("cuda", "hip", "xpu")
            if (found := getattr(torch.version, name, None))]  # fmt: skip
    driver = _nvidia_driver() if device.type == "cuda" and torch.version.cuda else None
    if device.type == "xpu":
        driver = _module(device).get_device_properties(device).driver_version
    return ", ".join([*told, f"driver {driver or 'unknown'}"])


def _nvidia_driver() -> str | None:
    """As nvidia-smi tells it; torch does not."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip().partition("\n")[0] or None


def computes_float64(device: torch.device) -> bool:
    """Whether the device has float64."""
    return device.type not in _NO_FLOAT64


def computes_tf32(device: torch.device) -> bool:
    """Whether the device may be told to multiply float32 in TF32."""
    return device.type in _TF32


def held_memory(device: torch.device) -> dict[str, int]:
    """Bytes of an accelerator by what they are: ``allocated`` to tensors, ``reserved`` for them."""
    module = _module(device)
    if device.type == "mps":
        return {
            "allocated": module.current_allocated_memory(),
            "reserved": module.driver_allocated_memory(),
        }
    return {
        "allocated": module.memory_allocated(device),
        "reserved": module.memory_reserved(device),
    }


def free_memory(device: torch.device) -> tuple[int, int] | None:
    """Free and total bytes of an accelerator; None where its driver does not tell."""
    if device.type == "mps":
        total = int(_module(device).recommended_max_memory())
        return total - held_memory(device)["reserved"], total
    tells = getattr(_module(device), "mem_get_info", None)
    return tells(device) if tells else None


def release_cache() -> None:
    """Give the accelerator's memory that no tensor holds back to the driver, if there is one."""
    if (device := _accelerator()) is not None:
        _module(device).empty_cache()


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was given; a CPU always has."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """Page-locked on its way to a device, which copies it without the processor's help."""
    if device.type in ("cpu", *_NO_PINNING) or tensor.device.type != "cpu" or tensor.is_pinned():
        return tensor
    return tensor.pin_memory()


def to_device(device: torch.device, dtype: torch.dtype, *tensors: Tensor) -> list[Tensor]:
    """The tensors on the device, as ``dtype``: the one way in.

    Several take one copy together. They are converted there, because a copy that converts does so
    on the host first, in memory that is not :func:`pinned`, and waits.
    """
    if device.type == "cpu" or len(tensors) == 1:
        return [pinned(x, device).to(device, non_blocking=True).to(dtype) for x in tensors]
    flat = pinned(torch.cat([x.flatten() for x in tensors]), device)
    there = flat.to(device, non_blocking=True).to(dtype)
    parts = torch.split(there, [x.numel() for x in tensors])
    return [part.view(x.shape) for part, x in zip(parts, tensors, strict=True)]


def to_host(tensor: Tensor) -> Tensor:
    """The tensor on the CPU: the one way out, and the one place that waits for a device."""
    return tensor.cpu()


def _accelerator() -> torch.device | None:
    there = torch.accelerator.is_available()
    return torch.accelerator.current_accelerator() if there else None


def _module(device: torch.device) -> Any:  # noqa: ANN401
    """torch.cuda, torch.xpu and so on: memory came to ``torch.accelerator`` after 2.6."""
    return torch.get_device_module(device)
