"""Libraries that only some commands need: loaded when they do, and asked for by name if missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from acpc_client.errors import FailedPrecondition


def load(module: str, extra: str) -> ModuleType:
    """A module of an optional dependency.

    Raises:
        FailedPrecondition: It is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise FailedPrecondition(
            f"{package} is needed here and not installed: pip install 'acpc[{extra}]'"
        ) from error


def pyarrow() -> tuple[ModuleType, ModuleType]:
    """``pyarrow`` (with ``pyarrow.compute``) and ``pyarrow.parquet``."""
    load("pyarrow.compute", "report")
    return load("pyarrow", "report"), load("pyarrow.parquet", "report")
