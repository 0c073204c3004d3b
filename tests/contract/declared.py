"""Bad requests made from good ones: each breaks one thing that the contract declares of a field."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import wire
from acpc import contract
from acpc.contract.fields import ANY, Bounds
from acpc.contract.messages import wire_names
from acpc.contract.tensor import Axes
from acpc.v1.tensor_pb2 import Tensor
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

INVALID = "INVALID_ARGUMENT"
NAN, INF = float("nan"), float("inf")
WHOLE = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
RECORDS: list[type[Any]] = [
    *contract.KINDS.values(), contract.CheckpointRef, contract.DatasetAnchors, contract.CemBudget,
    contract.PerturbationSet, contract.ScoreProtocol, contract.Thresholds,
    contract.EvidenceOptions, contract.UntilDecided, contract.DriftStudy, contract.PlannerStudy,
    contract.GeometryStudy, contract.SensitivityStudy, contract.Objective,
    contract.DistanceTerm, contract.ScoreRequest, contract.StudyRequest, contract.UploadHeader,
    contract.CreateRequest, contract.PairRequest, contract.PlanStart,
    contract.PoolRequest, contract.OwnPool, contract.PairedRequest, contract.Proposal,
]  # fmt: skip
RECORD_OF = {record.message_type.DESCRIPTOR.full_name: record for record in RECORDS}
# Arrays whose record holds them in a union or behind a codec, by the full name of the field.
ARRAYS = {
    "acpc.v1.Goal.frame": Axes("height, width, 3", of_frames=True),
    "acpc.v1.Goal.latent": Axes("latent width", of_frames=False),
}


class Case(NamedTuple):
    """A request, the field path that its refusal must name ("" for none), and the status.

    ``method`` is ``Service.Method``; the request of a method that reads a stream is a list.
    """

    id: str
    method: str
    request: Any
    field: str = ""
    code: str = INVALID


# Each a label, changed fields of a good message, the field at fault, and a status but INVALID.
Rows = list[tuple[Any, ...]]
Rules = dict[str, Rows]
Steps = tuple[tuple[str, int | None], ...]
Edit = Callable[[Any], object]


def numbers(field: FieldDescriptor, bounds: Bounds) -> Iterator[float]:
    """Numbers just outside a range, and those that are none, as far as the wire can hold them."""
    if field.cpp_type in WHOLE:
        least, most = WHOLE[field.cpp_type]
        outside = {bounds.ge - 1, bounds.le + 1, most}
        yield from (
            int(value)
            for value in outside
            if math.isfinite(value) and least <= value <= most and not bounds.holds(value)
        )
        return
    kind = np.float32 if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT else np.float64
    edges = (bounds.ge, -math.inf), (bounds.le, math.inf)
    beyond = [float(np.nextafter(kind(edge), kind(way))) for edge, way in edges]
    # In one order in every process: a set's depends on where NaN lies in memory.
    for value in dict.fromkeys([*beyond, bounds.gt, bounds.lt, NAN, INF, -INF]):
        if not bounds.holds(value):
            yield value


def wrong(field: FieldDescriptor, bounds: Bounds) -> Iterator[Any]:
    """Values that a scalar field, or a list of scalars, cannot have."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        yield 99
    elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        if bounds.max_length is not None:
            text = "x" * (bounds.max_length + 1)
            yield text if field.type == FieldDescriptor.TYPE_STRING else text.encode()
        if bounds.min_length:
            yield ""
    elif field.is_repeated:
        if bounds.max_length is not None:
            inside = next(x for x in (1, 0, bounds.le) if bounds.holds(x))
            yield [inside] * (bounds.max_length + 1)
        yield from ([value] for value in numbers(field, bounds))
    elif field.cpp_type != FieldDescriptor.CPPTYPE_BOOL:  # 0 may be how the default is written
        yield from (x for x in numbers(field, bounds) if x or field.has_presence)


def tensors(good: Tensor, axes: Axes) -> Iterator[tuple[str, Tensor, str]]:
    """Arrays that a field of these axes cannot hold: label, message, and the part at fault."""
    shape, kind = list(good.shape), np.uint8 if axes.of_frames else np.float32
    zeros, size = np.zeros(shape, kind), np.dtype(kind).itemsize

    def as_sent(extents: list[int], data: bytes) -> Tensor:
        return Tensor(dtype=good.dtype, shape=extents, data=data)

    for label, dtype in ("unset", 0), ("unknown", 99):
        yield f"dtype-{label}", Tensor(dtype=dtype, shape=shape, data=good.data), "dtype"
    for other in ("i4", "i8", "?", "f4" if axes.of_frames else "u1"):
        yield f"dtype-{other}", wire.tensor(zeros.astype(other)), "dtype"
    for label, data in ("few", good.data[:-1]), ("many", good.data + b"x"), ("none", b""):
        yield f"bytes-{label}", as_sent(shape, data), "data"
    yield "no-shape", as_sent([], good.data + b"x"), "data"
    yield "scalar", as_sent([], bytes(size)), "shape"
    yield "rank-more", as_sent([1, *shape], good.data), "shape"
    yield "rank-100", as_sent([1] * 100, bytes(size)), "shape"
    yield "rank-absurd", as_sent([2**60] * 1000, b"x"), "shape"
    yield "negative", as_sent([-shape[0], *shape[1:]], good.data), "shape"
    yield "huge", as_sent([2**62, *shape[1:]], good.data), "shape"
    if len(shape) > 1:
        yield "rank-less", wire.tensor(zeros[0]), "shape"
        yield "negatives", as_sent([-shape[0], -shape[1], *shape[2:]], good.data), "shape"
        yield "overflow", as_sent([2**40, 2**40, *shape[2:]], good.data), "shape"
        yield "wraps", as_sent([2**32, 2**32, *shape[2:]], b""), "shape"
        yield "empty-huge", as_sent([0, 2**62, *shape[2:]], b""), "shape"
    if axes.of_frames:
        for axis in range(len(shape)):
            extents = [*shape[:axis], 0, *shape[axis + 1 :]]
            yield f"empty-{axis}", as_sent(extents, b""), "shape"
        yield "channels", wire.tensor(np.zeros([*shape[:-1], 4], kind)), "shape"
        return
    for value in (NAN, INF, -INF, 1e300):
        array = np.zeros(shape)
        array.flat[-1] = value
        narrow = array if math.isfinite(value) else array.astype(kind)
        yield f"{value}", wire.tensor(narrow), "data"


def _parts(message: Message, steps: Steps = ()) -> Iterator[tuple[Steps, Message]]:
    """A message and all that are set in it; of those in a list, every one."""
    yield steps, message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        several = enumerate(value) if field.is_repeated else [(None, value)]
        for index, part in several:
            yield from _parts(part, (*steps, (field.name, index)))


def _edited(request: Message, steps: Steps, edit: Edit) -> Message:
    """A copy whose part at the end of the steps was edited."""
    copy = type(request)()
    copy.CopyFrom(request)
    at: Any = copy
    for step, index in steps:
        at = getattr(at, step) if index is None else getattr(at, step)[index]
    edit(at)
    return copy


def setting(name: str, value: Any) -> Edit:
    def edit(part: Any) -> None:
        part.ClearField(name)
        if value is not None:
            part.MergeFrom(type(part)(**{name: value}))

    return edit


def _row(changes: dict[str, Any]) -> Edit:
    """Makes the changes of a row, but for those of fields that only its other messages have."""

    def edit(part: Any) -> None:
        for name, value in changes.items():
            if name in part.DESCRIPTOR.fields_by_name:
                setting(name, value)(part)

    return edit


def broken(request: Message, rules: Rules, only: str = "") -> Iterator[tuple[Any, ...]]:
    """For each thing declared of a good request: label, path, the request that breaks it, status.

    Args:
        request: What is in it is tried; it is not changed.
        rules: Rows for each message by its name, which are tried wherever one occurs, in a list
            at its first entry.
        only: Declarations of fields whose name holds this.
    """
    for steps, part in _parts(request):
        head = "".join(f"{name}." if at is None else f"{name}[{at}]." for name, at in steps)
        record = RECORD_OF.get(part.DESCRIPTOR.full_name)
        for number, (name, label, value, path) in enumerate(_of_fields(part, record)):
            if only in name:
                changed = _edited(request, steps, setting(name, value))
                yield f"{head}{name}-{number}={label}", f"{head}{path}", changed, INVALID
        if any(at for _, at in steps):
            continue
        for label, changes, path, *code in rules.get(part.DESCRIPTOR.name, ()):
            changed = _edited(request, steps, _row(changes))
            at = f"{head}{path}".rstrip(".") if path else ""
            yield f"{head}{label}", at, changed, *(code or [INVALID])


def _of_fields(part: Any, record: type | None) -> Iterator[tuple[str, str, Any, str]]:
    """What the fields of a message cannot hold: name, label, the value, and the path."""
    for field in part.DESCRIPTOR.fields:
        if field.full_name in ARRAYS and part.HasField(field.name):
            yield from _arrays(field.name, part, ARRAYS[field.full_name])
    for f in dataclasses.fields(record) if record else ():
        field = part.DESCRIPTOR.fields_by_name.get(wire_names(record).get(f.name))
        if field is None:
            continue
        if (axes := f.metadata.get("array")) and part.HasField(field.name):
            if f.default is dataclasses.MISSING and field.containing_oneof is None:
                yield field.name, "missing", None, f"{field.name}.dtype"
            yield from _arrays(field.name, part, axes)
        elif field.message_type is None and get_type_hints(record)[f.name] is not bool:
            for value in wrong(field, f.metadata.get("bounds", ANY)):
                yield field.name, f"{value!r:.20}", value, field.name


def _arrays(name: str, part: Any, axes: Axes) -> Iterator[tuple[str, str, Any, str]]:
    for label, bad, at in tensors(getattr(part, name), axes):
        yield name, label, bad, f"{name}.{at}"
