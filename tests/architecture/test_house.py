"""The rules of the house that no linter has, read from the syntax of our sources."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import acpc_client
import pytest
from house import Module, imports, modules

ROOT = Path(__file__).parents[2]
MAX_FUNCTION_LINES = 50
MAX_FILE_LINES = 400
DBOS_FILES = tuple(f"acpc_server.jobs.{name}" for name in ("record", "run", "runner"))
# What knows one kind of accelerator from another; all else is the same on each.
KINDS = {"cuda"}
KIND_FILES = ("acpc_server.engine.accelerator", "acpc_server.settings")

KNOWN = modules()
pytestmark = pytest.mark.process  # reads all sources


def past_the_face(module: Module) -> Iterator[str]:
    """Imports of a file inside another package, by its path and not by the package's name."""
    for found in imports(module, KNOWN):
        package = found.target.package
        inside = f"{module.name}.".startswith(f"{package}.")
        if not inside and not found.target.is_package and not found.offered:
            yield f"{module.name} imports {found.target.name}"


def long_function(module: Module) -> Iterator[str]:
    """Functions longer than a screen, docstring left out."""
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if ast.get_docstring(node, clean=False) is not None:
                lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{module.name} {node.name}"


def long_file(module: Module) -> Iterator[str]:
    """Files of more than 400 lines."""
    if module.text.count("\n") > MAX_FILE_LINES:
        yield module.name


def dbos_caller(module: Module) -> Iterator[str]:
    """Files other than three that call DBOS."""
    for node in module.nodes:
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        if module.name not in DBOS_FILES and any(n.partition(".")[0] == "dbos" for n in names):
            yield module.name


def accelerator_kind(module: Module) -> Iterator[str]:
    """Names of one kind of accelerator in the server: torch.cuda, x.cuda(), "cuda:0"."""
    if not module.name.startswith("acpc_server") or module.name in KIND_FILES:
        return
    for node in module.nodes:
        named = isinstance(node, ast.Attribute) and node.attr in KINDS
        # torch.backends.cuda are settings of the process, with or without such a device.
        if named and ast.unparse(node) != "torch.backends.cuda":
            yield f"{module.name} {ast.unparse(node)}"
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and text.partition(":")[0] in KINDS:
            yield f"{module.name} {text}"


RULES = {
    "past-the-face": past_the_face,
    "long-function": long_function,
    "long-file": long_file,
    "accelerator-kind": accelerator_kind,
    "dbos-caller": dbos_caller,
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_holds(rule: str) -> None:
    broken = [found for module in KNOWN.values() for found in RULES[rule](module)]
    assert not broken, "\n" + "\n".join(sorted(broken))


def test_test_files_have_names_of_their_own() -> None:
    """Pytest imports them by name: of two alike the second cannot be collected beside the first."""
    names = Counter(path.name for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []


def test_packages_import_in_one_direction() -> None:
    """Siblings at every level of the tree, packages and modules, form no cycle; so no files do."""
    edges: dict[str, set[str]] = {}
    for name, module in KNOWN.items():
        for target in {found.target.name for found in imports(module, KNOWN)} - {name}:
            ours, theirs = name.split("."), target.split(".")
            shared = next(
                (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None
            )
            if shared is not None:  # otherwise one holds the other
                sibling = ".".join(ours[: shared + 1])
                edges.setdefault(sibling, set()).add(".".join(theirs[: shared + 1]))
    TopologicalSorter(edges).prepare()  # raises CycleError, which names them


def layers_of(chain: str) -> list[set[str]]:
    """Layers from the highest to the lowest, each the packages that share a place."""
    common = {"acpc.datasets", "acpc.evidence", "acpc.contract"}
    layers = [{name.strip() for name in layer.split("|")} - common for layer in chain.split("->")]
    return [layer for layer in layers if layer]


@pytest.mark.parametrize(
    ("side", "package"), [("server", "acpc_server"), ("client", "acpc_client"), ("lab", "acpc_lab")]
)
def test_the_page_draws_the_checked_arrows(side: str, package: str) -> None:
    """The arrows that docs/architecture.md draws are those that import-linter checks."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    [checked] = [
        contract["layers"]
        for contract in tools["importlinter"]["contracts"]
        if contract["type"] == "layers" and contract["layers"][0].startswith(f"{package}.")
    ]
    page = (ROOT / "docs/architecture.md").read_text()
    drawn = re.search(rf"^{side} +(.*(?:\n +.*)*)", page, re.MULTILINE)
    assert drawn is not None
    assert layers_of(drawn[1]) == layers_of("->".join(checked).replace(f"{package}.", ""))


def test_examples_import_from_the_client_what_it_offers() -> None:
    past = []
    for file in (ROOT / "examples").rglob("*.py"):
        found = [n for n in ast.walk(ast.parse(file.read_bytes())) if isinstance(n, ast.ImportFrom)]
        names = {(n.module or "", alias.name) for n in found for alias in n.names}
        if any(module == "acpc_client" for module, _ in names):
            past += [
                f"{file.name}: {module}.{name}"
                for module, name in sorted(names)
                if module.startswith("acpc_client.")
                or (module == "acpc.contract" and name in acpc_client.__all__)
            ]
    assert not past
