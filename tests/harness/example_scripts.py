"""Scripts of examples/, which are no packages, and plug-ins of it on the path."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def script(folder: str, name: str) -> ModuleType:
    """``examples/FOLDER/NAME.py`` as a module."""
    spec = importlib.util.spec_from_file_location(
        f"{folder}_{name}", EXAMPLES / folder / f"{name}.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@contextmanager
def plugged_in(site: Path, package: str) -> Iterator[None]:
    """The package installed in ``site`` can be imported; afterwards it is forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        yield
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
