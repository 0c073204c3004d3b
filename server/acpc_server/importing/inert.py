"""Reads a pickle of torch as data: every class and function in it stays a name.

An unpickler is a small machine whose programs may call anything. This one knows the instructions
that ``torch.save`` writes and calls nothing: what they would make is described by :class:`Inert`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from acpc_server.importing.archive import DTYPES, Archive, StoredTensor, unsafe

MAX_STEPS = 400_000
MAX_NAME = 300
ORDERED = {"collections.OrderedDict", "builtins.dict", "__builtin__.dict"}
TENSORS = {"torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor"}
PARAMETERS = {
    "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state",
    "torch.nn.parameter.Parameter",
}  # fmt: skip
_MARK = object()


@dataclass(slots=True, eq=False, repr=False)
class Name:
    """A class or function that a pickle names; nothing looks it up."""

    name: str


@dataclass(slots=True, eq=False, repr=False)
class Inert:
    """What a pickle would make by calling ``name``; its attributes, and what was put into it."""

    name: str
    args: object
    state: object = None
    items: dict[Any, object] = field(default_factory=dict)

    @property
    def attributes(self) -> dict[Any, Any]:
        """The content of its ``__dict__``."""
        state = self.state[0] if isinstance(self.state, tuple) and self.state else self.state
        return state if isinstance(state, dict) else {}


@dataclass(slots=True, eq=False, repr=False)
class _Storage:
    described: tuple[str, str, int]


def read_inert(archive: Archive) -> object:
    """The object that an archive's pickle describes; its tensors are :class:`StoredTensor`.

    Raises UnsafeCheckpoint: Damaged, too large, or instructions that torch.save does not write.
    """
    return _Machine(archive).run()


class _Machine:
    def __init__(self, archive: Archive) -> None:
        self._archive, self._data, self._at = archive, archive.pickle, 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._named: dict[int, StoredTensor] = {}

    def run(self) -> object:
        try:
            for _ in range(MAX_STEPS):
                code = self._data[self._at]
                self._at += 1
                if code == 0x2E:  # STOP
                    return self._finish()
                self._STEPS[code](self)
        except KeyError as error:
            found = f"instruction {self._data[self._at - 1]:#04x}" if self._at else str(error)
            problem = f"its pickle has {found}, which torch.save does not write in protocol 2"
            raise unsafe(self._archive.name, problem) from None
        except (IndexError, TypeError, ValueError, struct.error, AttributeError):
            raise unsafe(self._archive.name, "its pickle is damaged") from None
        raise unsafe(self._archive.name, f"its pickle takes more than {MAX_STEPS} steps")

    def _finish(self) -> object:
        named = sum(tensor.nbytes for tensor in self._named.values())
        if named > self._archive.size:
            problem = f"its tensors name {named} bytes, but it holds {self._archive.size}"
            raise unsafe(self._archive.name, problem)
        if len(self._stack) != 1:
            raise ValueError
        return self._stack[0]

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError
        taken, self._at = self._data[self._at : end], end
        return taken

    def _number(self, form: str) -> Any:  # noqa: ANN401
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _line(self) -> str:
        end = self._data.index(b"\n", self._at, self._at + MAX_NAME)
        line = self._take(end - self._at).decode()
        self._at += 1
        return line

    def _text(self) -> None:
        self._stack.append(self._take(self._number("<I")).decode("utf-8", "surrogatepass"))

    def _long(self) -> None:
        size = self._number("<B")
        if size > 8:
            raise unsafe(self._archive.name, f"a whole number of {size} bytes")
        self._stack.append(int.from_bytes(self._take(size), "little", signed=True))

    def _marked(self) -> list[Any]:
        """Take what lies above the last mark off the stack."""
        place = len(self._stack) - 1
        while self._stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise ValueError
        found = self._stack[place + 1 :]
        del self._stack[place:]
        return found

    def _tuple(self, count: int) -> None:
        found = tuple(self._stack[-count:])
        if len(found) != count:
            raise ValueError
        self._stack[-count:] = [found]

    def _put(self, pairs: list[Any]) -> None:
        target = self._stack[-1]
        into = target.items if isinstance(target, Inert) else target
        if not isinstance(into, dict) or len(pairs) % 2:
            raise TypeError
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            # A hash of our own for what a file could make many equal ones of.
            plain = key is None or isinstance(key, str | int | float | Name | Inert | StoredTensor)
            into[key if plain else Inert("key", key)] = value

    def _extend(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, Inert):  # a list of a class of its own
            target.items.update((Inert("item", None), value) for value in values)
        elif isinstance(target, list):
            target.extend(values)
        else:
            raise TypeError

    def _pop_pair(self) -> list[Any]:
        key, value = self._stack[-2:]
        del self._stack[-2:]
        return [key, value]

    def _global(self) -> None:
        self._stack.append(Name(f"{self._line()}.{self._line()}"))

    def _call(self) -> None:
        function, args = self._pop_pair()
        if not isinstance(function, Name | Inert) or not isinstance(args, tuple):
            raise TypeError
        made: object = Inert(function.name, args)
        if function.name in ORDERED and not args:
            made = {}
        elif function.name in TENSORS and isinstance(args[0], _Storage):
            made = self._archive.tensor(args[0].described, args[1:4])
            self._named[id(made)] = made
        elif function.name in PARAMETERS and isinstance(args[0], StoredTensor):
            made = args[0]
        self._stack.append(made)

    def _new(self) -> None:
        kind, args = self._pop_pair()
        self._stack.append(Inert(kind.name, args))

    def _build(self) -> None:
        target, state = self._stack[-2:]
        del self._stack[-1]
        if isinstance(target, Inert):
            if target.state is not None:
                raise ValueError
            target.state = state
        # OrderedDict's own attributes, as the _metadata of a state dict, are left out.
        elif not isinstance(target, dict | StoredTensor):
            raise TypeError

    def _storage(self) -> None:
        word, kind, key, _, elements = self._stack.pop()
        name = kind.name.rpartition(".")[2]
        if word != "storage" or not isinstance(key, str) or type(elements) is not int:
            raise ValueError
        known = name in DTYPES
        described = (name, key, elements)
        self._stack.append(_Storage(described) if known else Inert(kind.name, described))

    def _recall(self, form: str) -> None:
        place = self._number(form)
        if place not in self._memo:
            raise ValueError
        self._stack.append(self._memo[place])

    def _keep(self, form: str) -> None:
        self._memo[self._number(form)] = self._stack[-1]

    def _protocol(self) -> None:
        if (found := self._number("<B")) != 2:
            problem = f"pickled with protocol {found}; save it with torch.save's own, which is 2"
            raise unsafe(self._archive.name, problem)

    _STEPS: ClassVar[dict[int, Callable[[_Machine], object]]] = {
        ord(code): step
        for code, step in {
            "\x80": _protocol,
            "c": _global,
            "q": lambda self: self._keep("<B"),
            "r": lambda self: self._keep("<I"),
            "h": lambda self: self._recall("<B"),
            "j": lambda self: self._recall("<I"),
            "(": lambda self: self._stack.append(_MARK),
            ")": lambda self: self._stack.append(()),
            "]": lambda self: self._stack.append([]),
            "}": lambda self: self._stack.append({}),
            "N": lambda self: self._stack.append(None),
            "\x88": lambda self: self._stack.append(True),
            "\x89": lambda self: self._stack.append(False),
            "J": lambda self: self._stack.append(self._number("<i")),
            "K": lambda self: self._stack.append(self._number("<B")),
            "M": lambda self: self._stack.append(self._number("<H")),
            "G": lambda self: self._stack.append(self._number(">d")),
            "\x8a": _long,
            "X": _text,
            "t": lambda self: self._stack.append(tuple(self._marked())),
            "\x85": lambda self: self._tuple(1),
            "\x86": lambda self: self._tuple(2),
            "\x87": lambda self: self._tuple(3),
            "a": lambda self: self._extend([self._stack.pop()]),
            "e": lambda self: self._extend(self._marked()),
            "s": lambda self: self._put(self._pop_pair()),
            "u": lambda self: self._put(self._marked()),
            "0": lambda self: self._stack.pop(),
            "1": lambda self: self._marked(),
            "R": _call,
            "\x81": _new,
            "b": _build,
            "Q": _storage,
        }.items()
    }
