"""Loads the libraries of the lab's extras when they are needed, and says what to install if not."""

from acpc.contract import load_lab as load
from acpc.contract import pyarrow

__all__ = ["load", "pyarrow"]
