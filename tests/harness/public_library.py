"""The public library's modules, without the simulators that importing it whole needs."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import distribution
from types import ModuleType


def public_module(name: str) -> ModuleType:
    """A module of stable-worldmodel 0.1.1, such as ``data.formats.hdf5`` or ``solver.cem``.

    The library's own ``__init__`` imports every environment, and with them simulators; a package
    of the same name and path, and no more, stands in for it.
    """
    if "stable_worldmodel" not in sys.modules:
        package = ModuleType("stable_worldmodel")
        package.__path__ = [str(distribution("stable-worldmodel").locate_file("stable_worldmodel"))]
        sys.modules["stable_worldmodel"] = package
    return importlib.import_module(f"stable_worldmodel.{name}")
