"""Answers of a device: computed by rows, equal where inputs are equal, checked where not finite.

The last bits of a float32 row depend on its place in a batch, on the batch's size and on the number
of threads. Rows with equal inputs therefore share the first one's answer. They stay in the batch,
so that the bits of every other row are the same with and without equal rows.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Sequence

import numpy as np
import structlog
import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn import functional

from acpc_server.engine.accelerator import release_cache, to_host
from acpc_server.errors import DeviceFailed, Unavailable, shortage
from acpc_server.observe import Metrics
from acpc_server.scheduling import RETRY_SECONDS

log = structlog.get_logger("acpc.engine")
# Errors of torch after which every further call of the process fails too.
_ACCELERATOR = re.compile(
    r"\b(CUDA|HIP|SYCL|MPS|Level.?Zero)( (driver|backend))? error|cuDNN error"
    r"|CUDNN_STATUS|CUBLAS_STATUS|CUSOLVER_STATUS",
    re.IGNORECASE,
)
# A call that asked for the impossible leaves the accelerator as it was.
_HARMLESS = re.compile(r"invalid (configuration )?argument|not supported|out of memory", re.I)
CHANNELS, KERNEL = 8, 3
# A checkpoint that diverges costs at most one known product in so many seconds.
PRODUCT_SECONDS = 1.0
# oneDNN keeps what it has prepared for a shape; a shape that was not just used is prepared again.
_sizes = itertools.cycle(range(8, 64))


def by_rows(
    compute: Callable[..., Tensor], payloads: Sequence[tuple[Tensor, ...]]
) -> Sequence[Tensor]:
    """Compute several payloads as one batch, or as few as memory allows; return each one's rows.

    The first axis of every tensor of a payload is rows.
    """
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


def equal_rows(*columns: Tensor) -> Tensor | None:
    """Return for each row the first row that equals it in every column, int64 (n,).

    None where no two rows are equal. ``columns`` are float32 on the CPU, (n, ...) each.
    """
    head = np.sort(columns[0].flatten(1)[:, 0].numpy())
    if not (head[1:] == head[:-1]).any():  # what nearly every call finds, in microseconds
        return None
    # Adding 0 turns -0 into 0, so that equal numbers are equal bytes.
    joined = (torch.cat([column.flatten(1) for column in columns], dim=1) + 0.0).numpy()
    rows = joined.view(np.dtype((np.void, joined.strides[0])))[:, 0]
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    return None if len(first) == len(rows) else torch.from_numpy(first[inverse])


def share_rows(answers: Tensor, *columns: Tensor) -> Tensor:
    """Return the answers (n, ...), equal rows of the inputs sharing the first one's answer."""
    first = equal_rows(*columns)
    return answers if first is None else answers[first]


class FiniteCheck:
    """Looks whether answers of a device are finite; for the device's thread only.

    Attributes:
        not_finite: Number of answers so far that were not.
    """

    def __init__(self, device: torch.device, metrics: Metrics) -> None:
        self.device, self._metrics = device, metrics
        self._product_due = 0.0
        self.not_finite = 0

    def compute(self, once: Callable[..., Tensor], primitive: str, *inputs: Tensor) -> Tensor:
        """Compute on the CPU; again when finite inputs give a non-finite answer.

        A product of known result then decides whether the device is at fault or the model, with
        which a caller must not end the server. Answers that repeat ask for it once in a while.

        Raises DeviceFailed: The device gets the known product wrong; Unavailable: The two answers
        differ.
        """
        answer = once(*inputs)
        finite = _finite(answer)
        if finite.all():
            return answer
        self.not_finite += 1
        if not all(_finite(x).all() for x in inputs):
            return answer
        again = once(*inputs)
        outcome = "repeated" if torch.equal(_finite(again), finite) else "changed"
        self._metrics.not_finite.labels(primitive, outcome).inc()
        log.warning("answer_not_finite", primitive=primitive, rows=len(answer), again=outcome)
        if outcome == "changed" or time.monotonic() >= self._product_due:
            if wrong := wrong_answer(self.device):
                raise DeviceFailed(wrong)
            self._product_due = time.monotonic() + PRODUCT_SECONDS
        if outcome == "changed":
            raise Unavailable(
                "an answer was not finite, and another when it was computed again; try again",
                reason="ANSWER_CHANGED",
                retry_after=RETRY_SECONDS,
            )
        return again


def _finite(rows: Tensor) -> Bool[Tensor, "n"]:
    return torch.isfinite(rows).flatten(1).all(dim=1)


def accelerator_failed(error: BaseException) -> bool:
    """Return whether an error says that the accelerator itself has failed."""
    text = str(error)
    return _ACCELERATOR.search(text) is not None and _HARMLESS.search(text) is None


def wrong_answer(device: torch.device) -> str:
    """Convolve and multiply small whole numbers; return what is wrong with the result, or ''.

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
