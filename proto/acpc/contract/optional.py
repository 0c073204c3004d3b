"""Loads libraries that are not always installed, when they are needed."""

from __future__ import annotations

import importlib
from types import ModuleType

from acpc.contract.errors import FailedPrecondition
from acpc.extras import install_line


def load_optional(module: str, install: str) -> ModuleType:
    """A module of an optional dependency.

    Args:
        module: Its name.
        install: The command that installs it.

    Raises FailedPrecondition: It is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise FailedPrecondition(f"this needs {package}: {install}") from error


def load_lab(module: str, extra: str = "lab") -> ModuleType:
    """A module of the extra [lab], or of a rarer one; raises as ``load_optional``."""
    return load_optional(module, install_line(extra))
