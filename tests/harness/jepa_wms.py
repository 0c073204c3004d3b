"""The scripts of examples/jepa_wms, which are no package."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "examples" / "jepa_wms"


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"jepa_wms_{name}", FOLDER / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


convert, tiny = _script("convert"), _script("tiny")
