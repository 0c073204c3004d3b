"""Messages made wrong by their descriptors: values at the edges of types, and bytes beyond them."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from acpc.v1 import tensor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

Field = FieldDescriptor
# Stands in a message for bytes that no string can hold; ``wire_bytes`` puts them there.
NOT_UTF8 = "\x02not utf-8\x02"
BAD_BYTES = b"\xff\xfe\xc0\x80\xf8 \xed\xa0\x80!"
INTEGERS = [0, 1, 2, 3, 5, 16, 127, 128, 255, 256, 1000, 4096, 65_535, 65_536, 10**6]
INTEGERS += [2**k + d for k in (31, 32, 53, 62, 63, 64) for d in (-1, 0)]
REALS = [0.0, -0.0, 0.5, 1.0, -1.0, 1e-300, 5e-324, 1e30, 1e308, math.nan, math.inf, -math.inf]
STRINGS = ["", " ", "/", ".", "..", "../../etc/passwd", "\x00", "a\x00b", "a/b", "%s%n{0}"]
STRINGS += ["é" * 900, "x" * 129, "x" * 100_000, "\u202e\ud7ff\U0010ffff", "' OR 1=1 --", "-1"]
STRINGS += ["9" * 30, NOT_UTF8, "operations/", "operations/" + "0" * 64]
STRINGS += ["state=failed AND created>=9999-12-31T23:59:59-23:59"]
RANGES = {
    Field.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    Field.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    Field.CPPTYPE_UINT32: (0, 2**32 - 1),
    Field.CPPTYPE_UINT64: (0, 2**64 - 1),
    Field.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
}
SHAPES: list[list[int]] = [
    [], [0], [-1], [1], [2**62, 4], [2**32, 2**32], [2**63 - 1], [1] * 40, [3, 0, 28, 3],
    [0, 2**62, 2**62], [-1, -1], [3, 2**31, 28, 3], [1] * 5000,
]  # fmt: skip
EDGES = [b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff\xff\x7f\xff", b"\x01\x00\x00\x00"]
MANY = 2000
MAX_DEPTH = 4


class Mutator:
    """Makes and changes messages with one source of randomness.

    Args:
        rng: Decides everything.
        words: Names that mean something to the server under test, beside those that never do.
    """

    def __init__(self, rng: random.Random, words: Sequence[str]) -> None:
        self._rng = rng
        self._words = words

    def mutate(self, message: Message) -> None:
        """Change one field somewhere in a message."""
        if isinstance(message, tensor_pb2.Tensor) and self._rng.random() < 0.9:
            self._change_tensor(message)
            return
        found = list(places(message))
        if not found:
            return
        owner, field = self._rng.choice(found)
        if self._rng.random() < 0.2:
            owner.ClearField(field.name)
        elif field.is_repeated:
            self._change_repeated(owner, field)
        elif field.cpp_type == Field.CPPTYPE_MESSAGE:
            child = getattr(owner, field.name)
            if owner.HasField(field.name) and self._rng.random() < 0.7:
                self.mutate(child)
            else:
                child.CopyFrom(self.generate(field.message_type))
        else:
            setattr(owner, field.name, self._scalar(field))

    def generate(self, kind: Descriptor, depth: int = 0) -> Message:
        """A message with any fields, each with any value of its type."""
        message = GetMessageClass(kind)()
        for field in kind.fields:
            if self._rng.random() < 0.5 or depth > MAX_DEPTH:
                continue
            if field.is_repeated:
                self._change_repeated(message, field, depth)
            elif field.cpp_type == Field.CPPTYPE_MESSAGE:
                made = self.generate(field.message_type, depth + 1)
                getattr(message, field.name).CopyFrom(made)
            else:
                setattr(message, field.name, self._scalar(field))
        return message

    def wire_bytes(self, message: Message, damage: float) -> bytes:
        """A message as bytes, which are damaged with probability ``damage``."""
        data = message.SerializeToString().replace(NOT_UTF8.encode(), BAD_BYTES)
        return self._damaged(data) if self._rng.random() < damage else data

    def _damaged(self, data: bytes) -> bytes:
        """Bytes cut, overwritten, repeated, followed by others, nested too deep, or any at all."""
        rng, depth = self._rng, self._rng.choice((50, 99, 101, 5000))
        first, last = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        nested = b""
        for _ in range(min(depth, 500)):
            nested = b"\x0a" + _varint(len(nested)) + nested
        makers: tuple[Callable[[], bytes], ...] = (
            lambda: data[:first],
            lambda: data[:first] + rng.randbytes(rng.choice((1, 20))) + data[first + 1 :],
            lambda: data[:last] + data[rng.choice((first, last)) :],
            lambda: data + b"".join(self._field() for _ in range(rng.choice((1, 5, MANY)))),
            lambda: data + rng.choice((b"\x0b" * depth + b"\x0c" * depth, nested)),
            lambda: rng.randbytes(rng.choice((0, 1, 2, 5, 64, 10_000))),
        )
        return rng.choice(makers)()

    def _field(self) -> bytes:
        """A field that the descriptor lacks, or that it gives another type."""
        number = self._rng.choice((1, 2, 3, 15, 16, 1000, 2**29 - 1))
        kind, size = self._rng.choice(((0, 0), (1, 8), (2, 4), (5, 4)))
        head = {0: _varint(self._rng.getrandbits(64)), 2: _varint(4)}.get(kind, b"")
        return _varint(number << 3 | kind) + head + self._rng.randbytes(size)

    def _scalar(self, field: FieldDescriptor) -> Any:
        kind = field.cpp_type
        if kind == Field.CPPTYPE_BOOL:
            return self._rng.random() < 0.5
        if kind in (Field.CPPTYPE_DOUBLE, Field.CPPTYPE_FLOAT):
            value = self._rng.choice([*REALS, self._rng.uniform(-2, 2)])
            return value if kind == Field.CPPTYPE_DOUBLE or abs(value) < 1e38 else 1.0
        if kind == Field.CPPTYPE_STRING and field.type == Field.TYPE_BYTES:
            return self._rng.randbytes(self._rng.choice((0, 1, 100, 10_000)))
        if kind == Field.CPPTYPE_STRING:
            return self._rng.choice([*STRINGS, *self._words, *self._words])
        low, high = RANGES[kind]
        small = 8 if kind == Field.CPPTYPE_ENUM else 40
        value = self._rng.choice([*INTEGERS, -1, low, high, *[self._rng.randrange(small)] * 9])
        return min(max(value, low), high)

    def _change_repeated(self, owner: Message, field: FieldDescriptor, depth: int = 0) -> None:
        values = getattr(owner, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
            for _ in range(self._rng.choice((1, 3, MANY))):
                values[f"{self._scalar(key)}"[:200]] = self._scalar(value)
            return
        count = self._rng.choice((0, 1, 1, 2, 3, 8, MANY))
        message = field.cpp_type == Field.CPPTYPE_MESSAGE
        one = self.generate(field.message_type, depth + 1) if message else self._scalar(field)
        if isinstance(one, str):
            one = one[:1000]
        if isinstance(one, Message) and one.ByteSize() > 10_000:
            count = min(count, 8)
        if len(values) and self._rng.random() < 0.3:
            one = values[self._rng.randrange(len(values))]
        values.extend([one] * count)
        if not message and count < 10:
            values.extend(
                self._scalar(field) for _ in range(count) if field.type != Field.TYPE_STRING
            )

    def _change_tensor(self, tensor: tensor_pb2.Tensor) -> None:
        choice = self._rng.randrange(7)
        if choice == 0:
            tensor.dtype = self._rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, -1))
        elif choice == 1:
            tensor.ClearField("shape")
            tensor.shape.extend(self._rng.choice(SHAPES))
        elif choice == 2 and tensor.shape:
            at = self._rng.randrange(len(tensor.shape))
            more = min(tensor.shape[at] + 1, 2**63 - 1)
            tensor.shape[at] = self._rng.choice((0, 1, -1, more, 2**62, 2**33))
        elif choice == 3:
            tensor.data = tensor.data[: self._rng.randrange(len(tensor.data) + 1)]
        elif choice == 4:
            tensor.data += self._rng.randbytes(self._rng.choice((1, 4, 4000)))
        elif choice == 5 and len(tensor.data) >= 4:
            edge = self._rng.choice(EDGES)
            tensor.data = (edge * (len(tensor.data) // 4 + 1))[: len(tensor.data)]
        else:  # one row more or less, with data to match
            rows = tensor.shape[0] if tensor.shape else 0
            if 0 < rows < 1000 and len(tensor.data) % rows == 0:
                row = len(tensor.data) // rows
                tensor.shape[0] = wanted = self._rng.choice((0, 1, rows - 1, rows + 1, 2 * rows))
                tensor.data = (tensor.data * 2)[: wanted * row]


def places(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    """Every field of a message, and of the messages in it."""
    for field in message.DESCRIPTOR.fields:
        yield message, field
    for field, value in message.ListFields():
        if field.cpp_type == Field.CPPTYPE_MESSAGE:
            if not field.is_repeated:
                yield from places(value)
            elif not field.message_type.GetOptions().map_entry:
                for item in value[:3]:
                    yield from places(item)


def _varint(value: int) -> bytes:
    out = b""
    while value >= 128:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])
