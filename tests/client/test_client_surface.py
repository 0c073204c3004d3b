"""The public surface, and what importing it must not bring along."""

import ast
import inspect
import json
import sys
from typing import Any

import acpc.contract
import acpc_client
import processes
import pytest


@pytest.mark.parametrize("package", [acpc_client, acpc.contract])
def test_a_face_has_what_its_table_says_and_type_checkers_read(package: Any) -> None:
    listed = {name: module for module, names in package.NAMES.items() for name in names.split()}
    assert listed.keys() <= set(dir(package))
    imports = [node for node in ast.walk(ast.parse(inspect.getsource(package)))
               if isinstance(node, ast.ImportFrom) and node.module]  # fmt: skip
    stated = {alias.name: node.module for node in imports for alias in node.names}
    whole = {node.module for node in imports if node.names[0].name == "*"}
    for name, module in listed.items():
        home = module if "." in module else f"{package.__name__}.{module}"
        homes = {home, f"{package.__name__}.{name}"}
        assert stated.get(name) in (home, package.__name__) or homes & whole, name
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = package.Nothing


def modules_after(statement: str) -> set[str]:
    """Modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}; import sys, json; print(json.dumps(list(sys.modules)))"
    shown = processes.run([sys.executable, "-c", code])
    return set(json.loads(shown.stdout))


HEAVY = {"opentelemetry", "torch", "typer", "click", "rich", "pandas", "pydantic", "h5py"}
HEAVY |= {"acpc_server"}
WORKBENCH = {"acpc_lab", "yaml", "matplotlib", "jinja2", "pyarrow", "PIL"}
DRAWING = {"matplotlib", "jinja2", "PIL", "pyarrow", "yaml"}
LOADS: dict[str, tuple[set[str], set[str]]] = {
    "import acpc_client": (set(), {"grpc", "numpy", "google"}),
    "import acpc_client; acpc_client.AcpcClient()": ({"grpc"}, {"numpy"}),
    "from acpc_client import *": ({"grpc", "numpy", "acpc_client"}, HEAVY | WORKBENCH),
    "from acpc_lab.integrations import CemCertificates, EpochScorer": (
        set(),
        HEAVY | {"stable_worldmodel", "gymnasium"},
    ),
    "from acpc_lab.sweeps import *; import acpc_lab.tables": (set(), HEAVY | DRAWING - {"PIL"}),
    "from acpc_lab.report import *": (set(), HEAVY | DRAWING),
    "import acpc_lab.cli": ({"typer"}, {"torch", "acpc_server", "pandas", "h5py"}),
    "import acpc_lab.studies.bundle, acpc_lab.studies.paper": (
        set(),
        {"torch", "acpc_server", "pandas", "matplotlib", "jinja2", "pyarrow", "sklearn", "scipy"},
    ),
}
"""What a statement loads at least, and what it does not: libraries are loaded when needed."""


@pytest.mark.process
@pytest.mark.parametrize("statement", LOADS)
def test_importing_loads_nothing_heavy(statement: str) -> None:
    needed, unused = LOADS[statement]
    loaded = {name.partition(".")[0] for name in modules_after(statement)}
    assert needed <= loaded
    assert not loaded & unused
