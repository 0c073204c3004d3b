"""What the architecture tests know of the sources: modules, imports and definitions, by syntax."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ROOTS = {
    "acpc_server": REPOSITORY / "server",
    "acpc_client": REPOSITORY / "client",
    "acpc_lab": REPOSITORY / "client",
    "acpc.contract": REPOSITORY / "proto",
    "acpc.datasets": REPOSITORY / "proto",
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
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of its tree, walked once for all rules."""
        return list(ast.walk(self.tree))

    @property
    def package(self) -> str:
        """The package it lies in; a package lies in itself."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    @cached_property
    def offers(self) -> set[str]:
        """Names that the file's own imports bind, lazily or not: what a face offers."""
        return {
            alias.asname or alias.name
            for top in self.tree.body
            for node in (top.body if isinstance(top, ast.If) else [top])
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }

    @cached_property
    def published(self) -> set[str]:
        """Names in its ``__all__``, or modules in the table of its face."""
        found: set[str] = set()
        for node in self.tree.body:
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


@dataclass(frozen=True)
class Import:
    """One imported module of ours, and whether its package offers it by name."""

    target: Module
    offered: bool


def imports(module: Module, known: dict[str, Module]) -> Iterator[Import]:
    """The modules of ours that a file imports, at any depth of its code."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in known:
                    yield Import(known[alias.name], offered=False)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            source = known[node.module]
            package, _, name = source.name.rpartition(".")
            for alias in node.names:
                inner = known.get(f"{source.name}.{alias.name}")
                if inner is None:
                    published = package in known and name in known[package].published
                    yield Import(source, offered=published)
                else:
                    yield Import(inner, offered=alias.name in source.offers)
