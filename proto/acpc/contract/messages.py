"""Converts between dataclasses and protobuf messages, both ways, from the dataclass's type hints.

``class Timing(Wire[pb.Timing])`` says which message a dataclass stands for. A dataclass field is
the message field of its name, or of ``field(metadata={"wire": name})``, or with ``{"wire": None}``
none; a field named like a oneof holds whichever member is set. What a hint means:

=========================== =====================================================================
``int``, ``float``, ``str`` the scalar, also ``bool`` and ``bytes``
a ``WireEnum``              its number; an unknown number reads as 0, or is an error
a ``Wire`` dataclass        the nested message
``NDArray[...]``            a Tensor
``float``                   of a Duration: seconds
``datetime``                a Timestamp, in UTC
``Mapping[str, X]``         a map of scalars
``tuple[X, ...]``           a repeated field of X
``X | None``                None when absent
``A | B``                   of a oneof: the member of that type
``Annotated[X, Codec(..)]`` converted by the codec
=========================== =====================================================================

On reading, a field that is absent, or zero without presence, takes the dataclass's default where it
has one. Each class is compiled once, at its first use.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, get_args, get_origin

import numpy as np
from google.protobuf.descriptor import FieldDescriptor, OneofDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from acpc.contract.enums import WireEnum
from acpc.contract.errors import ArgumentError
from acpc.contract.fields import Bounds, Convert, Frozen, cached, check_length, declared, parts_of
from acpc.contract.tensor import read_tensor, tensor_fields

M = TypeVar("M", bound=Message)
W = TypeVar("W", bound="Wire[Any]")
Fields = dict[str, object]
Take = Callable[[Message], object]
Write = Callable[[object], Fields]
Default = Callable[[], object] | None


class Wire(Frozen, Generic[M]):
    """Base of a dataclass that has a message: ``class Timing(Wire[receipt_pb2.Timing])``."""

    message_type: ClassVar[type[Message]]

    def __init_subclass__(cls, **made: bool) -> None:
        for base in getattr(cls, "__orig_bases__", ()):
            argument = next(iter(get_args(base)), None)
            if isinstance(argument, type) and issubclass(argument, Message):
                cls.message_type = argument
                name = cls.__name__
                said = f"``acpc.contract.about({name})``, ``about({name}, FIELD)``: what it holds."
                cls.__doc__ = f"{cls.__doc__ or ''}\n\n{said}".strip()
        super().__init_subclass__(**made)

    @classmethod
    def from_message(cls, message: M, *, strict: bool = False) -> Self:
        """Reads a message; the arrays share its bytes.

        Args:
            message: The message.
            strict: Whether an enum's unknown number is an error; otherwise it reads as 0.

        Raises ArgumentError: A value that breaks the contract; names its path.
        """
        return _reader(cls, strict)(message)

    def to_message(self, *, sparse: bool = False) -> M:
        """The message; where it is ``sparse``, without what is the default of an optional field.

        Raises ArgumentError: A value that has no place on the wire; names its path.
        """
        make: Callable[..., M] = self.message_type  # type: ignore[assignment]
        return make(**_writer(type(self), sparse)(self))


@dataclass(frozen=True)
class Codec:
    """Conversion of one type to the wire and back; both raise ArgumentError with a relative path.

    What is dumped is a scalar, or a message's fields by name.
    """

    load: Callable[..., object]  # ``load(held, strict=strict)``, of what the message's field holds
    dump: Convert | None  # None: the value as it is


def wire_names(cls: type) -> dict[str, str]:
    """The message field, or oneof, of every dataclass field that has one."""
    names = {f.name: f.metadata.get("wire", f.name) for f in dataclasses.fields(cls)}
    return {name: wire for name, wire in names.items() if wire is not None}


class _Step(NamedTuple):
    """How a field is read from a message and written, and which value may be left out of it."""

    name: str
    take: Take
    write: Write
    usual: object
    nested: bool


@cached
def _fields(cls: type[Wire[Any]], strict: bool) -> list[_Step]:
    """Of several errors the first is named: of what must be there, of the rest, of a oneof."""
    hints, wires = typing.get_type_hints(cls, include_extras=True), wire_names(cls)
    message: Any = cls.message_type.DESCRIPTOR
    found: list[tuple[tuple[bool, bool], _Step]] = []
    for f in (f for f in declared(cls) if f.name in wires):
        hint, default = hints[f.name], f.default
        if f.optional and default is None:
            default = type(None)  # what is optional, and not there
        field = message.fields_by_name.get(f.wire)
        if field is None:
            both = _oneof(message.oneofs_by_name[f.wire], hint, default, strict)
        else:
            both = _field(field, _convert(field, hint, strict, f.bounds), default)
        droppable = field and (field.has_presence or isinstance(f.usual, tuple | WireEnum))
        usual = f.usual if droppable and f.usual is not cls else None
        step = _Step(f.name, *both, usual, _own_codec(hint) is None)
        found.append(((field is None, default is not None), step))
    return [step for _, step in sorted(found, key=itemgetter(0))]


@cached
def _reader(cls: type[W], strict: bool) -> Callable[[Message], W]:
    """A function from a message to an instance."""
    make: Callable[..., W] = cls
    steps = [(step.name, step.take) for step in _fields(cls, strict)]
    return lambda message: make(**{name: take(message) for name, take in steps})


@cached
def _writer(cls: type[Wire[Any]], sparse: bool = False) -> Write:
    """A function from an instance to the arguments of its message's constructor."""
    steps = _fields(cls, strict=False)

    def fields(instance: object) -> Fields:
        values: Fields = {}
        for name, _, write, usual, nested in steps:
            value = getattr(instance, name)
            if value is None or (sparse and usual is not None and value == usual):
                continue
            written = write(value)
            if sparse and nested and isinstance(value, Wire):
                written = dict.fromkeys(written, _writer(type(value), sparse)(value))
            values |= written
        return values

    return fields


def _field(
    field: FieldDescriptor, converts: tuple[Convert | None, Convert | None], default: Default
) -> tuple[Take, Write]:
    """Makes the functions that read a field from a message, and write it."""
    (load, dump), name, presence = converts, field.name, field.has_presence

    def take(message: Message) -> object:
        held = message.HasField(name) if presence else getattr(message, name)
        if default is not None and not held:
            return default()
        if presence:
            held = getattr(message, name)
        return held if load is None else _below(name, load, held)

    return take, lambda value: {name: value if dump is None else _below(name, dump, value)}


def _below(name: str, convert: Convert, value: object) -> object:
    """What is converted; its errors are those of the field."""
    try:
        return convert(value)
    except ArgumentError as error:
        raise error.below(name) from error


def _convert_one(
    field: FieldDescriptor, hint: object, strict: bool
) -> tuple[Convert | None, Convert | None]:
    """Makes the functions that load and dump one value of a field; None: equal on both sides."""
    (hint, *_) = parts_of(hint)
    message = field.message_type and field.message_type.full_name
    if codec := _own_codec(hint):
        return partial(codec.load, strict=strict), codec.dump
    if message in _STANDARD:
        return _STANDARD[message]
    if isinstance(hint, type) and issubclass(hint, WireEnum):
        return partial(_member, {member.value: member for member in hint}, strict), None
    if isinstance(hint, type) and issubclass(hint, Wire):
        return _reader(hint, strict), _writer(hint)
    if field.message_type and hint is not GetMessageClass(field.message_type):
        raise TypeError(f"{field.full_name}: no conversion between {message} and {hint}")
    return None, None


def _own_codec(hint: object) -> Codec | None:
    extras = getattr(hint, "__metadata__", ())
    return next((extra for extra in extras if isinstance(extra, Codec)), None)


def _member(members: Mapping[int, WireEnum], strict: bool, number: int) -> WireEnum:
    """The member of an enum; a newer release's reads as the unspecified one."""
    if strict and number not in members:
        raise ArgumentError("", f"unknown value {number}")
    return members.get(number, members[0])


def _duration(seconds: float) -> Fields:
    total = round(seconds * 1e9)
    sign = -1 if total < 0 else 1
    whole, nanos = divmod(abs(total), 10**9)
    return {"seconds": sign * whole, "nanos": sign * nanos}


_STANDARD: dict[str | None, tuple[Convert, Convert | None]] = {
    "acpc.v1.Tensor": (read_tensor, tensor_fields),
    "google.protobuf.Duration": (lambda held: held.seconds + held.nanos * 1e-9, _duration),
    "google.protobuf.Timestamp": (lambda held: held.ToDatetime(tzinfo=UTC), None),
}


def _convert(
    field: FieldDescriptor, hint: object, strict: bool, bounds: Bounds
) -> tuple[Convert | None, Convert | None]:
    """Makes the functions that load and dump a field's content; None: nothing has to be done."""
    if not field.is_repeated or _own_codec(hint):
        return _convert_one(field, hint, strict)
    load: Convert = dict
    dump: Convert | None = None
    if field.message_type is None or not field.message_type.GetOptions().map_entry:
        load_one, dump = _convert_one(field, get_args(hint)[0], strict)
        load = tuple if load_one is None else _each(load_one)
        dump = dump and _each(dump)
    most = bounds.max_length

    def load_counted(held: Sized) -> object:
        """Counts the entries before it loads them: a message holds millions of small ones."""
        if most is not None and len(held) > most:
            check_length(len(held), "", bounds)
        return load(held)

    return load_counted, dump


def _each(convert: Convert) -> Convert:
    """Converts every item; an error names the item's index."""

    def convert_all(items: Iterable[object]) -> tuple[object, ...]:
        values: list[object] = []
        try:
            for item in items:
                values.append(convert(item))
        except ArgumentError as error:
            raise error.below(f"[{len(values)}]") from error
        return tuple(values)

    return convert_all


def _fits(field: FieldDescriptor, part: object) -> bool:
    if field.message_type is None:
        return part is type(field.default_value)
    if isinstance(part, type) and issubclass(part, Wire):
        return part.message_type.DESCRIPTOR is field.message_type
    return get_origin(part) is np.ndarray and field.message_type.full_name == "acpc.v1.Tensor"


def _oneof(
    oneof: OneofDescriptor, hint: object, default: Default, strict: bool
) -> tuple[Take, Write]:
    """Makes the functions that read a oneof from a message and write it, by a union's parts."""
    members = {
        field.name: (get_origin(part) or part, *_convert_one(field, part, strict))
        for field in oneof.fields
        for part in parts_of(hint)
        if _fits(field, part)
    }

    def read(message: Message) -> object:
        kind = message.WhichOneof(oneof.name)
        if kind is None or kind not in members:
            if default is None:
                raise ArgumentError(oneof.name, f"give one of {', '.join(members)}")
            return default()
        (_, load, _), held = members[kind], getattr(message, kind)
        return held if load is None else _below(kind, load, held)

    def write(value: object) -> Fields:
        for name, (kind, _, dump) in members.items():
            if isinstance(value, kind):
                return {name: value if dump is None else _below(name, dump, value)}
        raise ArgumentError(oneof.name, f"found {type(value).__name__}, wanted {list(members)}")

    return read, write
