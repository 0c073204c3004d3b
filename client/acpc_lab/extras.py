"""Loads the lab's own libraries when they are needed, and says how to install what is missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from acpc_client.errors import FailedPrecondition


def install_line(package: str) -> str:
    """One sentence for people who lack a package; ``acpc`` itself is on no public index."""
    return (
        f"{package} is needed here and not installed: install the lab extra of the acpc wheel or "
        "checkout, for example with pip install '.[lab]'"
    )


def load(module: str) -> ModuleType:
    """A module of an optional dependency.

    Raises:
        FailedPrecondition: It is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise FailedPrecondition(install_line(module.partition(".")[0])) from error


def pyarrow() -> tuple[ModuleType, ModuleType]:
    """``pyarrow`` (with ``pyarrow.compute``) and ``pyarrow.parquet``."""
    load("pyarrow.compute")
    return load("pyarrow"), load("pyarrow.parquet")
