"""Computes row by row what several chunks bring, as one batch or as few as memory allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog
import torch
from torch import Tensor

from acpc_server.engine.accelerator import release_cache
from acpc_server.errors import shortage

log = structlog.get_logger("acpc.engine")


def by_rows(
    compute: Callable[..., Tensor], payloads: Sequence[tuple[Tensor, ...]]
) -> Sequence[Tensor]:
    """The rows of each payload, which are tensors whose first axis is rows."""
    if len(payloads) == 1:
        return [_compute(compute, payloads[0])]
    joined = tuple(torch.cat(column) for column in zip(*payloads, strict=True))
    return torch.split(_compute(compute, joined), [len(payload[0]) for payload in payloads])


def _compute(compute: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
    """Compute all rows; in halves when the device or the host runs out of memory."""
    try:
        return compute(*inputs)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        rows = len(inputs[0])
        short = isinstance(error, torch.OutOfMemoryError) or shortage(error) is not None
        if rows == 1 or not short:
            raise
        log.warning("device_out_of_memory", rows=rows)
    release_cache()
    halves = zip(*(torch.split(x, (rows + 1) // 2) for x in inputs), strict=True)
    return torch.cat([_compute(compute, half) for half in halves])
