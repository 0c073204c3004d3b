"""The rules of the house that no linter has, read from the syntax of our sources."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import acpc_client
import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_FUNCTION_LINES = 50
MAX_FILE_LINES = 400
# What knows one kind of accelerator from another; all else is the same on each.
KINDS = {"cuda"}
# The generator's words are a kernel's on a GPU.
KIND_FILES = (
    "acpc_server.engine.accelerator", "acpc_server.numerics.keyed_random", "acpc_server.settings",
)  # fmt: skip
pytestmark = pytest.mark.process  # reads all sources
ROOTS = {
    "acpc_server": ROOT / "server",
    "acpc_client": ROOT / "client",
    "acpc_lab": ROOT / "client",
    "acpc.contract": ROOT / "proto",
    "acpc.datasets": ROOT / "proto",
}


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    path: Path
    is_package: bool

    @cached_property
    def text(self) -> str:
        """Its source."""
        return self.path.read_text()

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of its tree, walked once for all rules."""
        return list(ast.walk(ast.parse(self.text)))

    @property
    def package(self) -> str:
        """The package it lies in; a package lies in itself."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    @cached_property
    def offers(self) -> set[str]:
        """Names that a face offers: what it imports, its ``__all__``, or those of its table."""
        found = {
            alias.asname or alias.name
            for node in self.nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        for node in self.nodes:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                found |= set(ast.literal_eval(node.value))
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NAMES":
                found |= set(ast.literal_eval(node.value).get(self.name, "").split())
        return found


def modules() -> dict[str, Module]:
    """Every module of server, client, lab and contract by its dotted name."""
    found: dict[str, Module] = {}
    for root, folder in ROOTS.items():
        for path in sorted((folder / root.replace(".", "/")).rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            found[name] = Module(name, path, is_package)
    return found


KNOWN = modules()


def past_the_face(module: Module) -> Iterator[str]:
    """Imports of a file inside another package that has a face, by the file's own path."""
    named = [
        name
        for node in module.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        for name in (
            [f"{node.module}.{alias.name}", node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name]
        )
        if name in KNOWN
    ]
    for target in map(KNOWN.__getitem__, named):
        inside = f"{module.name}.".startswith(f"{target.package}.")
        face = KNOWN[target.package].offers
        offered = not face or target.name.rpartition(".")[2] in face
        if not inside and not target.is_package and not offered:
            yield f"{module.name} imports {target.name}"


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
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_holds(rule: str) -> None:
    broken = [found for module in KNOWN.values() for found in RULES[rule](module)]
    assert not broken, "\n" + "\n".join(sorted(broken))


def test_test_files_have_names_of_their_own() -> None:
    """Pytest imports them by name: of two alike the second cannot be collected beside the first."""
    names = Counter(path.name for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []


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
