"""A computation with a known answer: whether the device can be trusted."""

from __future__ import annotations

import itertools
import re

import torch
from torch import Tensor
from torch.nn import functional

from acpc_server.engine.accelerator import to_host

# What torch says when the accelerator or its driver fails. After most of these every further call
# of the process fails too, so nobody is asked again.
_ACCELERATOR = re.compile(
    r"\b(CUDA|HIP|SYCL|MPS|Level.?Zero)( (driver|backend))? error|cuDNN error"
    r"|CUDNN_STATUS|CUBLAS_STATUS|CUSOLVER_STATUS",
    re.IGNORECASE,
)
# A call that asked for the impossible leaves the accelerator as it was.
_HARMLESS = re.compile(r"invalid (configuration )?argument|not supported|out of memory", re.I)
CHANNELS, KERNEL = 8, 3
# oneDNN keeps what it has prepared for a shape; a shape that was not just used is prepared again.
_sizes = itertools.cycle(range(8, 64))


def accelerator_failed(error: BaseException) -> bool:
    """Whether an error says that the accelerator itself has failed."""
    text = str(error)
    return _ACCELERATOR.search(text) is not None and _HARMLESS.search(text) is None


def wrong_answer(device: torch.device) -> str:
    """Convolve and multiply small whole numbers; what is wrong with the answer, or ''.

    Raises whatever the device raises.
    """
    size = next(_sizes)
    ones = torch.ones(1, CHANNELS, size, size, device=device)
    folded = functional.conv2d(ones, torch.ones(CHANNELS, CHANNELS, KERNEL, KERNEL, device=device))
    rows: Tensor = folded.flatten(2)[0] @ torch.ones((size - KERNEL + 1) ** 2, 2, device=device)
    wanted = CHANNELS * KERNEL**2 * (size - KERNEL + 1) ** 2
    found = to_host(rows)
    if torch.allclose(found, torch.full_like(found, wanted), rtol=1e-3):
        return ""
    return f"a product of whole numbers came out as {found.flatten()[0]:g} instead of {wanted}"
