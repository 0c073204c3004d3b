"""Loads the libraries of the lab's extras when they are needed, and says what to install if not."""

from acpc.contract import load_lab as load

__all__ = ["load"]
