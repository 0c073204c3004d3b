"""Loads the libraries of the lab's extras when they are needed, and says what to install if not."""

from types import ModuleType

from acpc.contract import load_optional
from acpc.extras import install_line


def load(module: str, extra: str = "lab") -> ModuleType:
    """A module of the extra [lab], or of a rarer one; raises as ``load_optional``."""
    return load_optional(module, install_line(extra))
