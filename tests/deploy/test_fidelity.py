"""The fidelity page: every row names code and a test, and both are there."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import acpc.contract
from deployment_files import ROOT

PAGE = (ROOT / "docs" / "fidelity.md").read_text()
HEADER = ["what", "`paper`", "`released`", "code", "test"]
# Whose package comes first in a name of code; all other code is the server's.
ROOTS = {
    "acpc_lab": ROOT / "client",
    "contract": ROOT / "proto" / "acpc",
    "datasets": ROOT / "proto" / "acpc",
}
NAMED = re.compile(r"`([\w/]+)\.(\w+)`")


class Row(NamedTuple):
    what: str
    paper: str
    released: str
    code: str
    test: str


def rows() -> Iterator[Row]:
    """Of every table of the page."""
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells != HEADER and set(line) != set("|-"):
            yield Row(*cells)


@functools.cache
def names(file: Path) -> set[str]:
    """Functions, classes and methods that a file defines."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds)}


def test_the_code_and_the_test_of_a_row_exist() -> None:
    for row in rows():
        code, tests = NAMED.findall(row.code), NAMED.findall(row.test)
        assert row.paper and row.released and code and tests, row
        for module, name in code:
            base = ROOTS.get(module.partition("/")[0], ROOT / "server" / "acpc_server")
            assert name in names(base / f"{module}.py"), f"{module}.{name}"
        for module, name in tests:
            assert name in names(ROOT / "tests" / f"{module}.py"), f"{module}.{name}"


def test_every_parameter_that_follows_the_reading_is_on_the_page() -> None:
    """A default that ``released`` changes cannot be added without a row here."""
    following = {
        name
        for kind in (getattr(acpc.contract, name) for name in dir(acpc.contract))
        if isinstance(kind, type)
        for name, found in getattr(kind, "__dataclass_fields__", {}).items()
        if "released" in found.metadata
    }
    assert following
    missing = [name for name in following if f"--{name.replace('_', '-')}" not in PAGE]
    assert not missing
