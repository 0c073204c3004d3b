"""Names of a client that somebody guesses, with those that are meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module

from acpc.contract import did_you_mean


def unknown_attribute(client: object, name: str) -> AttributeError:
    """The error of a name that a client does not have, with the nearest that it has.

    ``list_checkpoints`` is ``checkpoints.list``: what lists, gets or deletes hangs on the thing.
    """
    known = list(_known(type(client)))
    words = {one.rstrip("s") for one in name.lower().replace("job", "operation").split("_")}
    alike = [one for one in known if words == {w.rstrip("s") for w in re.split(r"[._]", one)}]
    hint = did_you_mean(name, known) if not alike else f"did you mean {alike[0]!r}?"
    told = f"{type(client).__name__} has no attribute {name!r}"
    return AttributeError("; ".join(filter(None, (told, hint))), name=name, obj=None)


def _known(cls: type) -> Iterator[str]:
    for name in dir(cls):
        if name.startswith("_"):
            continue
        yield name
        held = getattr(getattr(cls, name), "fget", None)
        kind = held and held.__annotations__.get("return", "").rpartition(".")[2]
        package = import_module(cls.__module__.rpartition(".")[0])
        for method in dir(getattr(package, kind, object)) if kind else ():
            if not method.startswith("_"):
                yield f"{name}.{method}"
