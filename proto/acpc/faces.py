"""Loads the modules behind a package's face when one of their names is first used (PEP 562)."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import cache


def lazy_face(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose imports stand below ``TYPE_CHECKING``.

    They are read from its source, so that type checkers, import rules and this agree on them.
    """
    module = sys.modules[package]

    @cache
    def homes() -> dict[str, str]:
        import ast  # noqa: PLC0415 - only where a name is used
        import inspect  # noqa: PLC0415

        tree = ast.walk(ast.parse(inspect.getsource(module)))
        found = [node for node in tree if isinstance(node, ast.ImportFrom) and node.module]
        return {alias.name: str(node.module) for node in found for alias in node.names}

    def get(name: str) -> object:
        if name == "__all__":
            return sorted(homes())
        home = "" if name.startswith("__") else homes().get(name)
        if not home or home == package:  # a module of the package, whose own errors are shown
            if name.startswith("_") or importlib.util.find_spec(f"{package}.{name}") is None:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(home), name)
        setattr(module, name, value)
        return value

    return get, lambda: sorted({*vars(module), *homes()})
