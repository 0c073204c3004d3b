"""Messages as a caller sends them, and refusals as a caller reads them. Nothing of the client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from acpc.arrays import NDArray
from acpc.contract import GRADED, examples_of, unchanged
from acpc.v1 import diagnostic_service_pb2 as diagnostic
from acpc.v1 import perturbation_pb2, receipt_pb2, scoring_service_pb2, tensor_pb2
from google.rpc import error_details_pb2, status_pb2
from numpy.typing import ArrayLike

CODES = {
    "uint8": tensor_pb2.DTYPE_UINT8,
    "int32": tensor_pb2.DTYPE_INT32,
    "int64": tensor_pb2.DTYPE_INT64,
    "float16": tensor_pb2.DTYPE_FLOAT16,
    "float32": tensor_pb2.DTYPE_FLOAT32,
    "float64": tensor_pb2.DTYPE_FLOAT64,
    "bool": tensor_pb2.DTYPE_BOOL,
}
HISTORY, HORIZON, WIDTH, SIDE = 3, 4, 10, 28


def grid_of(kind: str) -> str:
    examples = examples_of(kind)
    texts = [str(shift).partition(":")[2] for shift in (unchanged(examples[0]), *examples)]
    first, at, others = texts[0].partition("@")
    return f"{kind}:" + ",".join([first, *(x.partition("@")[0] for x in texts[1:])]) + at + others


# Every built-in kind; of those with a second parameter or two directions, another grid too.
GRIDS = [
    "identity", *map(grid_of, GRADED), "gaussian_noise:0..0.08/5", "brightness:-0.3,0,0.3",
    "gamma:1,1.5,0.5", "motion_blur:0,5,9@30", "shadow:0,0.5,1@0.1", "cutout:0,0.1,0.3@8",
    "distractor:0..0.4/3@0.2", "background:0,0.5,1@c4d0d8@0.2", "knocked_camera:0,4,8@45",
]  # fmt: skip


def tensor(array: ArrayLike) -> tensor_pb2.Tensor:
    values = np.asarray(array)
    return tensor_pb2.Tensor(
        dtype=CODES[values.dtype.name], shape=values.shape, data=values.tobytes("C")
    )


def frames(
    count: int, *, height: int = SIDE, width: int = SIDE, seed: int = 0
) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), np.uint8)


def blocks(
    count: int = HISTORY + HORIZON - 1, *, width: int = WIDTH, seed: int = 1
) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, width), np.float32)


def noise(sigma: float = 0.08) -> perturbation_pb2.PerturbationSpec:
    return perturbation_pb2.PerturbationSpec(gaussian_noise={"sigma": sigma})


def blur(kernel: int = 5) -> perturbation_pb2.PerturbationSpec:
    return perturbation_pb2.PerturbationSpec(gaussian_blur={"kernel_size": kernel})


def shrink(scale: float = 0.25) -> perturbation_pb2.PerturbationSpec:
    return perturbation_pb2.PerturbationSpec(resize={"scale": scale})


def several(
    *specs: perturbation_pb2.PerturbationSpec, **numbers: int
) -> perturbation_pb2.PerturbationSet:
    return perturbation_pb2.PerturbationSet(specs=specs or [noise()], **numbers)


def checkpoint(name: str = "lewm", **parts: str) -> receipt_pb2.CheckpointRef:
    return receipt_pb2.CheckpointRef(name=name, **parts)


def pair(**changed: object) -> diagnostic.ComparePairRequest:
    """A good ComparePairRequest for a small checkpoint; None leaves a field out."""
    fields = {
        "checkpoint": checkpoint(),
        "history": tensor(frames(HISTORY)),
        "action_blocks": tensor(blocks()),
        **({} if "explicit_views" in changed else {"perturbations": several()}),
        **changed,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return diagnostic.ComparePairRequest(**given)


def score(**changed: object) -> scoring_service_pb2.ScoreCheckpointRequest:
    """A good ScoreCheckpointRequest for the small world; None leaves a field out."""
    fields = {
        "checkpoint": checkpoint(),
        "dataset": {"dataset": "tworoom.h5", "task": "tworoom", "count": 4},
        "perturbation": noise(),
        "protocol": {"draws": 2, "horizon": HORIZON},
        **changed,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return scoring_service_pb2.ScoreCheckpointRequest(**given)


@dataclass(frozen=True)
class Refusal:
    """A failed call: status name, message, and what the standard details say."""

    code: str
    message: str
    reason: str = ""
    domain: str = ""
    fields: tuple[str, ...] = ()
    request_id: str = ""
    retry_after: float | None = None

    @classmethod
    def of_status(cls, status: status_pb2.Status) -> Refusal:
        names = {code.value[0]: code.name for code in grpc.StatusCode}
        info = error_details_pb2.ErrorInfo()
        bad = error_details_pb2.BadRequest()
        request = error_details_pb2.RequestInfo()
        retry = error_details_pb2.RetryInfo()
        present = [
            detail.Unpack(kind) for detail in status.details for kind in (info, bad, request, retry)
        ]
        assert sum(present) == len(status.details), "a detail of another kind"
        return cls(
            code=names[status.code],
            message=status.message,
            reason=info.reason,
            domain=info.domain,
            fields=tuple(violation.field for violation in bad.field_violations),
            request_id=request.request_id,
            retry_after=retry.retry_delay.ToTimedelta().total_seconds()
            if retry.HasField("retry_delay")
            else None,
        )


def refusal(call: Callable[[], Any]) -> Refusal | None:
    try:
        call()
    except grpc.RpcError as error:
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                status = status_pb2.Status.FromString(value)
                assert status.code == error.code().value[0]
                return Refusal.of_status(status)
        return Refusal(error.code().name, error.details())
    return None
