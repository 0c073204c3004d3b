"""Loads the modules behind a package's face when one of their names is first used (PEP 562)."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping


def lazy_face(
    package: str, names: Mapping[str, str], rest: str = ""
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: Its name.
        names: What each module offers, as words; a module of the package by its last name, and
            modules that are offered themselves as what the package has.
        rest: A module all of whose names (``__all__``) are offered, too.
    """
    homes = {
        name: module if "." in module or module == package else f"{package}.{module}"
        for module, words in names.items()
        for name in words.split()
    }

    def offered() -> list[str]:
        return sorted({*homes, *(importlib.import_module(rest).__all__ if rest else ())})

    def get(name: str) -> object:
        if name == "__all__":
            return offered()
        home = homes.get(name)
        if home in (None, package) and not name.startswith("_"):
            if importlib.util.find_spec(f"{package}.{name}"):  # a module, whose errors are shown
                return importlib.import_module(f"{package}.{name}")
            home = rest if rest and name in offered() else None
        if not home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *offered()})
