"""Loads the libraries of the extra [lab] when they are needed, and says what to install if not."""

from __future__ import annotations

import importlib
from types import ModuleType

from acpc.extras import install_line
from acpc_client.errors import FailedPrecondition


def load(module: str) -> ModuleType:
    """A module of an optional dependency.

    Raises:
        FailedPrecondition: It is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise FailedPrecondition(f"this needs {package}: {install_line('lab')}") from error


def pyarrow() -> tuple[ModuleType, ModuleType]:
    """``pyarrow`` (with ``pyarrow.compute``) and ``pyarrow.parquet``."""
    load("pyarrow.compute")
    return load("pyarrow"), load("pyarrow.parquet")
