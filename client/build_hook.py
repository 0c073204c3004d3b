"""Writes the blocking client before hatchling builds a wheel, an sdist or an editable install."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BlockingClient(BuildHookInterface[Any]):
    """The hook that pyproject.toml names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Runs ``client/unasync.py``."""
        runpy.run_path(str(Path(self.root, "client", "unasync.py")), run_name="__main__")
