"""Requests with one number, text or list outside the range that the contract declares for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from acpc.contract.fields import Bounds, bounds_of
from acpc.contract.messages import wire_names
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

WHOLE = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def _numbers(field: FieldDescriptor, bounds: Bounds) -> Iterator[float]:
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
    beyond = {float(np.nextafter(kind(edge), kind(way))) for edge, way in edges}
    for value in {*beyond, bounds.gt, bounds.lt, math.nan, math.inf, -math.inf}:
        if not bounds.holds(value):
            yield value


def _wrong(field: FieldDescriptor, bounds: Bounds) -> Iterator[Any]:
    if bounds.max_length is not None and field.type == FieldDescriptor.TYPE_STRING:
        yield "x" * (bounds.max_length + 1)
    elif field.is_repeated:
        if bounds.max_length is not None:
            inside = next(x for x in (1, 0, bounds.le) if bounds.holds(x))
            yield [inside] * (bounds.max_length + 1)
        yield from ([value] for value in _numbers(field, bounds))
    elif field.type != FieldDescriptor.TYPE_STRING:  # 0 may be how the default is written
        yield from (x for x in _numbers(field, bounds) if x or field.has_presence)


Steps = tuple[tuple[str, int | None], ...]


def _parts(message: Message, steps: Steps = ()) -> Iterator[tuple[Steps, Message]]:
    """A message and all that are set in it; of those in a list, every one."""
    yield steps, message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        several = enumerate(value) if field.is_repeated else [(None, value)]
        for index, part in several:
            yield from _parts(part, (*steps, (field.name, index)))


def out_of_range(
    request: Message, records: dict[str, type[Any]]
) -> Iterator[tuple[str, str, Message]]:
    """For each declared range in a good request: name, path, and the request that leaves it.

    Args:
        request: What is in it is tried; it is not changed.
        records: The contract's record of a message, by the message's full name.
    """
    for steps, part in _parts(request):
        record = records.get(part.DESCRIPTOR.full_name)
        for name, bounds in bounds_of(record).items() if record else ():
            field = part.DESCRIPTOR.fields_by_name.get(wire_names(record)[name])
            if field is None or field.message_type is not None:
                continue
            path = "".join(
                f"{step}." if index is None else f"{step}[{index}]." for step, index in steps
            )
            for value in _wrong(field, bounds):
                changed = type(request)()
                changed.CopyFrom(request)
                at: Any = changed
                for step, index in steps:
                    at = getattr(at, step) if index is None else getattr(at, step)[index]
                if field.is_repeated:
                    getattr(at, field.name)[:] = value
                else:
                    setattr(at, field.name, value)
                shown = f"{value}"[:20]
                yield f"{path}{field.name}={shown}", f"{path}{field.name}", changed
