"""Tells a checkpoint that diverges from a device that is sick: by computing NaN once more."""

from __future__ import annotations

from collections.abc import Callable

import structlog
import torch
from torch import Tensor

from acpc_server.errors import DeviceFailed
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.engine")


def repeatable(
    compute: Callable[..., Tensor], primitive: str, metrics: Metrics, *inputs: Tensor
) -> Tensor:
    """The answer on the CPU; where it is not finite and ``inputs`` are, that has come twice.

    Raises:
        DeviceFailed: It came once.
    """
    answer = compute(*inputs)
    if _finite(answer) or not all(_finite(x) for x in inputs):
        return answer
    again = compute(*inputs)
    outcome = "changed" if _finite(again) else "repeated"
    metrics.not_finite.labels(primitive, outcome).inc()
    log.warning("answer_not_finite", primitive=primitive, rows=len(answer), again=outcome)
    if outcome == "changed":
        raise DeviceFailed("an answer was not finite, and was when it was computed again")
    return again


def _finite(values: Tensor) -> bool:
    return bool(torch.isfinite(values).all())
