"""What helps a person: the name that was meant, the library to install, what a field means."""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import fields
from enum import Enum
from functools import cache
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from acpc.contract.errors import FailedPrecondition

_CONTRACT = Path(__file__).parents[1] / "v1" / "acpc.binpb"
_MAX_LENGTH = 200
_MAX_KNOWN = 1000
_LIKE = 0.6
_WORDS = re.compile(r"[\W_]+")


def nearest(name: str, known: Iterable[str], count: int = 3, *, like: float = _LIKE) -> list[str]:
    """The known names most like one, best first; none where none is much like it.

    Case does not matter, and a whole word of a name will do: ``noise`` is near ``gaussian_noise``.
    Cheap whatever is asked: the first 1000 names are compared, by their first 200 characters.
    ``like`` is the least likeness, in [0, 1]: ``difflib``'s ratio.
    """
    import difflib  # noqa: PLC0415 - an error's, and it takes long to import

    by_spelling: dict[str, str] = {}
    for given in islice(known, _MAX_KNOWN):
        by_spelling.setdefault(given.casefold()[:_MAX_LENGTH], given)
    wanted = name.casefold()[:_MAX_LENGTH]
    close = difflib.get_close_matches(wanted, by_spelling, count, like)
    words = [spelling for spelling in by_spelling if wanted and wanted in _WORDS.split(spelling)]
    return [by_spelling[spelling] for spelling in dict.fromkeys([*close, *words])][:count]


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """``did you mean a or b?`` with the names most like one; ``otherwise`` where none is."""
    near = nearest(name, known)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else otherwise


def load_optional(module: str, install: str) -> ModuleType:
    """A module of an optional dependency.

    Raises FailedPrecondition: It is not installed; the message says how to ``install`` it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise FailedPrecondition(f"this needs {package}: {install}") from error


@cache
def comments() -> dict[str, str]:
    """What the .proto files say of messages, fields and enums: ``Norm.L1``, ``Thresholds.sr``."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415 - a page's alone

    contract = FileDescriptorSet.FromString(_CONTRACT.read_bytes())
    found = {}
    for file in contract.file:
        said = defaultdict[tuple[int, ...], str](str)
        for place in file.source_code_info.location:
            said[*place.path] = " ".join(place.leading_comments.split())
        for at, message in enumerate(file.message_type):
            found[message.name] = said[4, at]
            for index, field in enumerate(message.field):
                found[f"{message.name}.{field.name}"] = said[4, at, 2, index]
        for at, kind in enumerate(file.enum_type):
            found[kind.name], prefix = said[5, at], kind.value[0].name.removesuffix("UNSPECIFIED")
            for index, value in enumerate(kind.value):
                found[f"{kind.name}.{value.name.removeprefix(prefix)}"] = said[5, at, 2, index]
    return found


def about(record: type[Any], name: str = "") -> str:
    """What the .proto says of a record's message or of an enum, or of a field or value of it."""
    if issubclass(record, Enum):
        return comments().get(f"{record.__name__}.{name}" if name else record.__name__, "")
    message: str = record.message_type.DESCRIPTOR.name
    known = {f.name: f.metadata.get("wire", f.name) for f in fields(record)}
    return comments().get(f"{message}.{known[name]}" if name else message, "")
