"""The converter that stands beside a plug-in, loaded with the plug-in on the path."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest


@contextmanager
def converter(source: Path, site: Path) -> Iterator[ModuleType]:
    """``convert.py`` of the project in ``source``, which is installed in ``site``.

    Afterwards the plug-in's modules are forgotten, as its path is.
    """
    package = source.name
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        spec = importlib.util.spec_from_file_location(f"{package}_convert", source / "convert.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
        spec.loader.exec_module(module)
        yield module
        for name in [name for name in sys.modules if name.partition(".")[0] == f"acpc_{package}"]:
            del sys.modules[name]
