"""Tells a checkpoint that diverges from an answer that went wrong: by computing NaN once more."""

from __future__ import annotations

from collections.abc import Callable

import structlog
import torch
from jaxtyping import Bool
from torch import Tensor

from acpc_server.engine.canary import wrong_answer
from acpc_server.errors import DeviceFailed, Unavailable
from acpc_server.observe import Metrics
from acpc_server.scheduling import RETRY_SECONDS

log = structlog.get_logger("acpc.engine")


def repeatable(
    compute: Callable[..., Tensor],
    primitive: str,
    device: torch.device,
    metrics: Metrics,
    *inputs: Tensor,
) -> Tensor:
    """The answer on the CPU; its rows that are not finite though ``inputs`` are have come twice.

    Rows that come and go may be the device's fault, or that of a model that computes otherwise each
    time, with which a caller must not end the server: the canary decides.

    Raises:
        DeviceFailed: They came once, and the device fails its canary.
        Unavailable: They came once.
    """
    answer = compute(*inputs)
    finite = _finite(answer)
    if finite.all() or not all(_finite(x).all() for x in inputs):
        return answer
    again = compute(*inputs)
    outcome = "repeated" if torch.equal(_finite(again), finite) else "changed"
    metrics.not_finite.labels(primitive, outcome).inc()
    log.warning("answer_not_finite", primitive=primitive, rows=len(answer), again=outcome)
    if outcome == "changed":
        if wrong := wrong_answer(device):
            raise DeviceFailed(wrong)
        raise Unavailable(
            "an answer was not finite, and another when it was computed again; try again",
            reason="ANSWER_CHANGED",
            retry_after=RETRY_SECONDS,
        )
    return again


def _finite(rows: Tensor) -> Bool[Tensor, "n"]:
    return torch.isfinite(rows).flatten(1).all(dim=1)
