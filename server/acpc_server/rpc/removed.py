"""Finds fields in a request that this release has no more, which protobuf would drop unsaid.

Reads the wire format itself, not ``UnknownFieldSet``, which makes an object of each unknown field
before any is looked at: 64 MiB of them would take gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto

# Looked at in a request, which has some dozens.
MAX_FIELDS = 1000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class RemovedFields:
    """The reserved numbers of a message and of those inside it."""

    def __init__(self, kind: Descriptor, within: tuple[Descriptor, ...] = ()) -> None:
        declared = DescriptorProto()
        kind.CopyToProto(declared)
        ranges = [range(one.start, one.end) for one in declared.reserved_range]
        numbers = [number for one in ranges for number in one]
        # Numbers and names stand in one order where each field has both.
        paired = len(numbers) == len(declared.reserved_name)
        names = declared.reserved_name if paired else map(str, numbers)
        self.gone = dict(zip(numbers, names, strict=True))
        self.inner = {
            field.number: (field.name, removed)
            for field in kind.fields
            if (held := field.message_type) is not None
            and held not in (kind, *within)
            and (removed := RemovedFields(held, (kind, *within)))
        }

    def __bool__(self) -> bool:
        return bool(self.gone or self.inner)

    def find(self, data: bytes | memoryview) -> str:
        """Path of the first removed field in a serialised message that parses; empty: none."""
        return self._find(memoryview(data), iter(range(MAX_FIELDS)), "")

    def _find(self, data: memoryview, most: Iterator[int], path: str) -> str:
        for number, value in _fields(data, most):
            if number in self.gone:
                return path + self.gone[number]
            name, inside = self.inner.get(number, ("", None))
            if inside and value and (found := inside._find(value, most, f"{path}{name}.")):  # noqa: SLF001
                return found
        return ""


def _fields(data: memoryview, most: Iterator[int]) -> Iterator[tuple[int, memoryview | None]]:
    """Yield the number of each field, and what is inside it where it is a message or bytes.

    ``most`` is used up by one a field.
    """
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    for _ in most:
        if at >= len(data):
            return
        number, wire = divmod(varint(), 8)
        size = {_FIXED64: 8, _FIXED32: 4}.get(wire, 0)
        if wire not in (_VARINT, _FIXED64, _BYTES, _FIXED32):  # a group, which no proto3 writes
            return
        if wire in (_VARINT, _BYTES):
            value = varint()
            size = value if wire == _BYTES else 0
        yield number, data[at : at + size] if wire == _BYTES else None
        at += size
