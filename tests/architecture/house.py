"""What the architecture tests know of the sources: modules, imports and definitions, by syntax."""

import ast
from collections.abc import Iterable, Iterator, Mapping
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
class Function:
    """A function or method: its qualified name and its lines."""

    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef

    @property
    def lines(self) -> int:
        """From ``def`` to its last line, the docstring left out."""
        body, end = self.node.body, self.node.end_lineno or 0
        lines = end - self.node.lineno + 1
        if ast.get_docstring(self.node, clean=False) is not None:
            first = body[0]
            lines -= (first.end_lineno or 0) - first.lineno + 1
        return lines


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

    def functions(self) -> Iterator[Function]:
        """Every function and method, nested ones too."""

        def walk(node: ast.AST, prefix: str) -> Iterator[Function]:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield Function(f"{prefix}{child.name}", child)
                    yield from walk(child, f"{prefix}{child.name}.")
                elif isinstance(child, ast.ClassDef):
                    yield from walk(child, f"{prefix}{child.name}.")
                else:
                    yield from walk(child, prefix)

        return walk(self.tree, "")


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
            for alias in node.names:
                inner = known.get(f"{source.name}.{alias.name}")
                if inner is None:
                    yield Import(source, offered=_published(source, known))
                else:
                    yield Import(inner, offered=alias.name in source.offers)


def _published(module: Module, known: dict[str, Module]) -> bool:
    """Whether the module is in the ``__all__`` of its package."""
    package, _, name = module.name.rpartition(".")
    return package in known and name in known[package].published


def graph(known: dict[str, Module]) -> dict[str, set[str]]:
    """The files each file imports."""
    return {
        name: {i.target.name for i in imports(module, known)} - {name}
        for name, module in known.items()
    }


def cycles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            new = set(edges.get(waiting.pop(), ())) - found
            found |= new
            waiting += new
        return found

    reach = {node: reached(node) for node in edges}
    groups = {
        tuple(sorted({node, *(n for n in reach[node] if node in reach.get(n, ()))}))
        for node in edges
        if node in reach[node]
    }
    return [list(group) for group in sorted(groups)]
