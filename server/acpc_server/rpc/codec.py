"""Between the wire's messages and the server's values. Every refusal names the request field."""

from __future__ import annotations

import time
from typing import Any, TypeAlias

import numpy as np
from acpc import contract
from acpc.v1 import diagnostic_service_pb2, perturbation_pb2, receipt_pb2, tensor_pb2

from acpc_server.encoding import DrawnViews, Views
from acpc_server.engine import CheckpointName, NumericMode
from acpc_server.errors import InvalidArgument
from acpc_server.perturb import AnyPerturbation, parse_spec
from acpc_server.scheduling import RequestContext

MODES = {
    receipt_pb2.NUMERIC_MODE_UNSPECIFIED: NumericMode.FP32,
    receipt_pb2.NUMERIC_MODE_FP32: NumericMode.FP32,
    receipt_pb2.NUMERIC_MODE_TF32: NumericMode.TF32,
    receipt_pb2.NUMERIC_MODE_BF16: NumericMode.BF16,
}
WIRE_MODES = {mode: wire for wire, mode in MODES.items()}
MAX_SPECS = 256
# With the longest horizon, the answer of this many views still fits a message.
MAX_VIEWS = 4096


Viewed: TypeAlias = (
    diagnostic_service_pb2.ComparePairRequest
    | diagnostic_service_pb2.CertifyPoolRequest
    | diagnostic_service_pb2.PlanStart
    | diagnostic_service_pb2.PlanPairedRequest
)


def read_tensor(tensor: tensor_pb2.Tensor, field: str) -> np.ndarray:
    """The array of a Tensor message; shares the message's bytes and is read-only.

    Raises:
        InvalidArgument: Unknown dtype, an absurd shape, or bytes that do not fill the shape.
    """
    try:
        return contract.read_tensor(tensor, field)
    except contract.ContractError as error:
        raise InvalidArgument(error.field, error.description) from error


def read_frames(tensor: tensor_pb2.Tensor, field: str, axes: str) -> np.ndarray:
    """uint8 RGB frames with the leading axes named in ``axes``: ``"frames"``, or "" for one frame.

    Raises:
        InvalidArgument: Not uint8, wrong rank, no frames, or not three channels.
    """
    frames = read_tensor(tensor, field)
    leading = axes.split(", ") if axes else []
    wanted = f"({', '.join([*leading, 'height', 'width', '3'])})"
    if frames.dtype != np.uint8:
        raise InvalidArgument(f"{field}.dtype", f"{frames.dtype}, but frames must be uint8")
    if frames.ndim != len(leading) + 3 or frames.shape[-1] != 3 or 0 in frames.shape:
        raise InvalidArgument(
            f"{field}.shape", f"{list(frames.shape)}, but frames must be {wanted} and not empty"
        )
    return frames


def read_matching_frames(
    tensor: tensor_pb2.Tensor, field: str, axes: str, history: np.ndarray
) -> np.ndarray:
    """Frames of the same size as the history's.

    Raises:
        InvalidArgument: As for :func:`read_frames`, or another size.
    """
    frames = read_frames(tensor, field, axes)
    if frames.shape[-3:] != history.shape[1:]:
        raise InvalidArgument(
            f"{field}.shape",
            f"frames of {list(frames.shape[-3:])}, but the history's are {list(history.shape[1:])}",
        )
    return frames


def read_floats(tensor: tensor_pb2.Tensor, field: str, axes: str) -> np.ndarray:
    """Finite float32 values of the axes named in ``axes``; float16 and float64 are converted.

    Raises:
        InvalidArgument: Not floating, wrong rank, or a NaN or infinity.
    """
    values = read_tensor(tensor, field)
    if values.dtype.kind != "f":
        raise InvalidArgument(f"{field}.dtype", f"{values.dtype}, but a float type is needed")
    if values.ndim != len(axes.split(",")):
        raise InvalidArgument(f"{field}.shape", f"{list(values.shape)}, but ({axes}) is needed")
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise InvalidArgument(f"{field}.data", f"not finite in float32 at index {bad[0].tolist()}")
    return values


def write_tensor(array: np.ndarray) -> tensor_pb2.Tensor:
    """A Tensor message with the array's values."""
    return contract.write_tensor(array)


def read_spec(message: perturbation_pb2.PerturbationSpec, field: str) -> AnyPerturbation:
    """The perturbation of a message, known to be one that can be applied.

    Raises:
        InvalidArgument: No kind, an unknown name, or a parameter at fault, which it names.
        FailedPrecondition: A plug-in that cannot be loaded.
    """
    kind = message.WhichOneof("kind")
    if kind is None:
        raise InvalidArgument(field, "choose a perturbation, for example gaussian_noise")
    chosen = getattr(message, kind)
    values = {f.name: getattr(chosen, f.name) for f in chosen.DESCRIPTOR.fields}
    if kind == "registered":
        values["parameters"] = dict(values["parameters"])
    try:
        spec = parse_spec({"kind": kind, **values})
        spec.resolve()
    except InvalidArgument as error:
        raise error.below(f"{field}.{kind}") from error
    return spec


def write_spec(spec: AnyPerturbation) -> perturbation_pb2.PerturbationSpec:
    """The message of a perturbation."""
    kind: dict[str, Any] = {spec.kind: spec.model_dump(exclude={"kind"})}
    return perturbation_pb2.PerturbationSpec(**kind)


def read_perturbations(message: perturbation_pb2.PerturbationSet, field: str) -> DrawnViews:
    """Specs and draws of a message.

    Raises:
        InvalidArgument: No spec, too many specs or views, or a bad parameter.
        FailedPrecondition: A plug-in that cannot be loaded.
    """
    if not 1 <= len(message.specs) <= MAX_SPECS:
        raise InvalidArgument(
            f"{field}.specs", f"{len(message.specs)} specs, but 1 to {MAX_SPECS} are needed"
        )
    draws = message.draws or 1
    if len(message.specs) * draws > MAX_VIEWS:
        raise InvalidArgument(
            f"{field}.draws",
            f"{draws} draws of {len(message.specs)} specs are over {MAX_VIEWS} views",
        )
    return DrawnViews(
        specs=tuple(
            read_spec(spec, f"{field}.specs[{index}]") for index, spec in enumerate(message.specs)
        ),
        draws=draws,
        seed=message.seed,
        anchor=message.anchor,
    )


def read_views(request: Viewed, history: np.ndarray) -> Views:
    """The other views of a request's history.

    Raises:
        InvalidArgument: None given, a bad spec, or frames that do not match the history.
        FailedPrecondition: A plug-in that cannot be loaded.
    """
    kind = request.WhichOneof("perturbation")
    if kind == "perturbations":
        return read_perturbations(request.perturbations, "perturbations")
    if kind is None:
        raise InvalidArgument("perturbations", "give perturbations or explicit_views")
    views = read_frames(request.explicit_views, "explicit_views", "views, frames")
    if views.shape[1:] != history.shape:
        raise InvalidArgument(
            "explicit_views.shape",
            f"views of {list(views.shape[1:])}, but the history is {list(history.shape)}",
        )
    return views


def read_mode(value: int) -> NumericMode:
    """The numeric mode of an enum value; InvalidArgument when there is no such mode."""
    mode = MODES.get(receipt_pb2.NumericMode.ValueType(value))
    if mode is None:
        raise InvalidArgument("numeric_mode", f"unknown mode {value}")
    return mode


def write_checkpoint(named: CheckpointName) -> receipt_pb2.CheckpointRef:
    """The reference to a checkpoint, its digest included."""
    return receipt_pb2.CheckpointRef(name=named.name, weights=named.weights, digest=named.digest)


def spent(context: RequestContext, started: float) -> contract.Timing:
    """Timing of the request behind a context, parsed at ``started`` by the performance counter."""
    total = time.perf_counter() - started
    return contract.Timing(context.queue_seconds, context.compute_seconds, total)
