"""Describes a pickle of torch as JSON: a program of its own, within limits, that can do no more.

    python -I -S unpickle.py MIB SECONDS < data.pkl

Every class and function that the pickle names is a stand-in, which keeps what it is given and does
nothing. Once the pickle is read, whatever the interpreter reports of it (an import, a file opened,
a process started) ends this one. Of the objects, dicts and modules are described, one node each.
"""

from __future__ import annotations

import gc
import io
import json
import os
import pickle
import resource
import sys
from typing import Any

DICTS = {"collections.OrderedDict", "builtins.dict", "__builtin__.dict"}
TENSORS = {"torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor"}
PARAMETERS = {
    "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state",
    "torch.nn.parameter.Parameter",
}  # fmt: skip
MAX_AXES, MAX_NODES, MAX_DEPTH, MAX_NAME, MAX_PATH = 8, 100_000, 64, 300, 1000
MAX_ATTRIBUTES, MAX_ANSWER = 200, 64 << 20


class RefusedError(Exception):
    """The pickle describes what no tensor or module is."""


class Kind(type):
    """The class of stand-ins for classes, which nothing can change."""

    def __setattr__(cls, *_: object) -> None:
        raise RefusedError("its pickle changes a class")


class Inert(metaclass=Kind):
    """What a pickle would make of a class or by a function; does nothing."""

    kind = ""
    args: tuple[Any, ...] = ()
    state: object = None

    def __new__(cls, *args: object, **_: object) -> Any:  # noqa: ANN401, D102
        made = object.__new__(cls)
        made.args = args
        return made

    def __setstate__(self, state: object) -> None:
        if self.state is not None:
            raise RefusedError("its pickle is damaged")
        self.state = state

    def __setitem__(self, *_: object) -> None:
        """Take what is put into a class of its own."""

    append = extend = __call__ = lambda self, *_: self

    @property
    def attributes(self) -> dict[Any, Any]:
        """The content of its ``__dict__``."""
        state = self.state[0] if isinstance(self.state, tuple) and self.state else self.state
        return state if isinstance(state, dict) else {}


class Ordered(dict, metaclass=Kind):  # type: ignore[type-arg]
    """An OrderedDict without attributes, as the ``_metadata`` of a state dict."""

    def __setstate__(self, _: object) -> None:
        """Leave them out."""


class Storage:
    """A storage that a pickle names; ``described`` is kind, key and elements."""

    def __init__(self, described: tuple[str, str, int]) -> None:
        self.described = described


class Tensor:
    """A tensor that a pickle describes by a storage and a layout."""

    def __init__(self, record: list[Any]) -> None:
        self.record = record

    def __setstate__(self, _: object) -> None:
        """Leave out what is said of gradients and hooks."""


class RebuiltTensor(Inert):
    """The function that makes a tensor of a storage."""

    def __new__(cls, *args: Any, **_: object) -> Any:  # noqa: ANN401, D102
        if len(args) < 4 or not isinstance(args[0], Storage):
            return super().__new__(cls, *args)
        offset, shape, strides = args[1:4]
        if not isinstance(shape, tuple) or not isinstance(strides, tuple):
            raise RefusedError("a tensor whose sizes are no counts")
        if len(shape) != len(strides) or len(shape) > MAX_AXES:
            raise RefusedError(f"a tensor of {len(shape)} axes and {len(strides)} strides")
        for side in (offset, *shape, *strides, args[0].described[2]):
            if type(side) is not int or not 0 <= side < 1 << 48:
                raise RefusedError("a tensor whose sizes are no counts")
        return Tensor([*args[0].described, offset, list(shape), list(strides)])


class RebuiltParameter(Inert):
    """The functions that make a parameter of a tensor."""

    def __new__(cls, *args: object, **_: object) -> Any:  # noqa: ANN401, D102
        return args[0] if args and isinstance(args[0], Tensor) else super().__new__(cls, *args)


class Reader(pickle.Unpickler):
    """An unpickler that finds nothing; ``kinds`` are the stand-ins by what they stand for."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.kinds: dict[str, type] = {}

    def find_class(self, module: str, name: str) -> type:
        """Make the stand-in of a name."""
        kind = f"{module}.{name}"[:MAX_NAME]
        if kind in DICTS:
            return Ordered
        if kind not in self.kinds:
            base = RebuiltTensor if kind in TENSORS else Inert
            base = RebuiltParameter if kind in PARAMETERS else base
            self.kinds[kind] = Kind("Inert", (base,), {"kind": kind})
        return self.kinds[kind]

    def persistent_load(self, pid: Any) -> Storage:  # noqa: ANN401
        """Take what a pickle says of a storage."""
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage":
            raise RefusedError("a persistent object that is no storage")
        kind, key, elements = pid[1], pid[2], pid[4]
        if type(kind) is not Kind or not isinstance(key, str):
            raise RefusedError("a persistent object that is no storage")
        return Storage((kind.kind.rpartition(".")[2], key[:MAX_NAME], elements))  # type: ignore[attr-defined]


def clean(key: object) -> str:
    """Spell a key so that any terminal shows it."""
    text = key if isinstance(key, str) else str(key) if type(key) is int else "?"
    return (text if text.isprintable() else ascii(text)[1:-1])[:MAX_NAME]


def kind_of(value: object) -> str:
    """Name the class of a value, or what a name is."""
    if isinstance(value, Inert):
        return value.kind
    if isinstance(value, Kind):
        return value.__dict__.get("kind", "dict")
    return {"Ordered": "dict"}.get(found := type(value).__name__, found)


def plain(value: object) -> object:
    """A number, text or short list of numbers as it is; of anything else its class."""
    if value is None or isinstance(value, float | bool):
        return value
    if isinstance(value, str) and len(value) <= MAX_NAME:
        return clean(value)
    if isinstance(value, int) and abs(value) < 1 << 63:
        return value
    if isinstance(value, list | tuple) and len(value) <= 4:
        return [plain(x) for x in value if not isinstance(x, list | tuple)]
    return {"type": kind_of(value)}


Content = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[Any, Any]]


def inside(value: object) -> Content | None:
    """Tensors, hidden tensors, attributes and parts of a dict or module; None: another value."""
    if isinstance(value, dict):
        tensors: dict[str, Any] = {}
        noted: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(item, Tensor) or not isinstance(key, str):
                noted[clean(key)] = plain(item)
            elif tensors.setdefault(clean(key), item.record) is not item.record:
                raise RefusedError(f"two tensors are named {clean(key)!r}")
        return tensors, {}, noted, value
    if not isinstance(value, Inert):
        return None
    if value.kind.endswith(".OptimizedModule") and value.args:
        return {}, {}, {}, {"_orig_mod": value.args[0]}
    held = value.attributes
    return _of_module(held) if isinstance(held.get("_modules"), dict) else None


def _of_module(held: dict[Any, Any]) -> Content:
    tensors: dict[str, Any] = {}
    hidden: dict[str, Any] = {}
    noted: dict[str, Any] = {}
    unsaved = held.get("_non_persistent_buffers_set")
    if isinstance(unsaved, Inert):
        unsaved = unsaved.args[0] if unsaved.args else ()
    unsaved = unsaved if isinstance(unsaved, set | frozenset | list | tuple) else ()
    names = {name for name in unsaved if isinstance(name, str)}
    for place in ("_parameters", "_buffers"):
        for key, item in _held(held, place).items():
            into = hidden if place == "_buffers" and key in names else tensors
            if item is not None:
                into[clean(key)] = item.record if isinstance(item, Tensor) else kind_of(item)
    for key, item in [*held.items()][:MAX_ATTRIBUTES]:
        if isinstance(item, Tensor):
            hidden[clean(key)] = item.record
        elif isinstance(key, str) and not key.startswith("_"):
            noted[clean(key)] = plain(item)
    if isinstance(config := held.get("config"), Inert):
        pairs = [*config.attributes.items()][:MAX_ATTRIBUTES]
        noted["config"] = {clean(key): plain(item) for key, item in pairs}
    return tensors, hidden, noted, _held(held, "_modules")


def _held(attributes: dict[Any, Any], key: str) -> dict[Any, Any]:
    found = attributes.get(key)
    return found if isinstance(found, dict) else {}


def describe(root: object) -> dict[str, Any]:
    """Every dict and module that is reached from the root, by its path, parents before children."""
    nodes: dict[str, Any] = {}
    pending = [("", root, 0)]
    while pending:
        path, value, depth = pending.pop()
        found = inside(value)
        if found is None:
            continue
        *content, parts = found
        if path in nodes:
            raise RefusedError(f"two values lie at {path[:MAX_NAME]!r}")
        nodes[path] = [depth, kind_of(value), *content]
        named = ((key, item) for key, item in parts.items() if isinstance(key, str | int))
        inner = [(key, item) for key, item in named if isinstance(item, dict | Inert)]
        if len(nodes) + len(pending) + len(inner) > MAX_NODES or depth > MAX_DEPTH:
            raise RefusedError(
                f"more than {MAX_NODES} modules and dicts, or deeper than {MAX_DEPTH}"
            )
        for key, item in reversed(inner):
            below = f"{path}.{clean(key)}" if path else clean(key)
            if len(below) > MAX_PATH:
                raise RefusedError(f"a module with a name of more than {MAX_PATH} letters")
            pending.append((below, item, depth + 1))
    return {"kind": kind_of(root), "nodes": nodes}


def alone(event: str, _: object) -> None:
    """End the process for anything that describing a pickle takes no part in."""
    os.write(1, json.dumps({"error": f"its pickle reached the interpreter ({event})"}).encode())
    os._exit(0)


def main() -> None:
    """Answer on standard output; a limit of memory is an answer, one of time a signal."""
    mib, seconds = int(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.disable()
    reader = Reader(sys.stdin.buffer.read())
    sys.addaudithook(alone)
    try:
        answer = describe(reader.load()) | {"names": [*reader.kinds]}
        text = json.dumps(answer).encode()
        if len(text) > MAX_ANSWER:
            raise RefusedError(f"its description takes more than {MAX_ANSWER} bytes")
    except MemoryError:
        text = b'{"limit": "memory"}'
    except RefusedError as error:
        text = json.dumps({"error": str(error)[:MAX_NAME]}).encode()
    except Exception:  # noqa: BLE001 - damaged bytes raise whatever they like
        text = b'{"error": "its pickle is damaged"}'
    while text:
        text = text[os.write(1, text) :]
    os._exit(0)


if __name__ == "__main__":
    main()
