"""An import hook that executes the shapes in signatures, and leaves other functions as they are.

jaxtyping's own hook wraps every function, and checks arguments twice: most of the time of a test
of a model went there. Here beartype checks a function that names a shape, and a dataclass with a
field that does, once a call; within a call, equal names are equal sizes.
"""

import ast
import functools
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from beartype import beartype
from jaxtyping import jaxtyped

# Of jaxtyping, and of ``acpc_server.perturb``, by which its functions name them.
SHAPES = {
    "Bool", "Float", "Float32", "Float64", "Int", "Int32", "Int64", "Shaped", "UInt8", "Frames",
}  # fmt: skip


def checked(subject: Any) -> Any:
    """A function that checks its arguments and answer, or a dataclass that checks its fields."""
    if isinstance(subject, type):
        subject.__init__ = checked(subject.__init__)
        return subject
    if any("{" in str(hint) for hint in subject.__annotations__.values()):
        return jaxtyped(subject, typechecker=beartype)  # sizes that are arguments
    typed: Callable[..., Any] = beartype(subject)

    @functools.wraps(subject)
    def call(*args: Any, **kwargs: Any) -> Any:
        with jaxtyped("context"):
            return typed(*args, **kwargs)

    return call


def check_shapes(packages: Sequence[str]) -> None:
    """From now on, modules of these packages are imported with their shapes checked."""
    sys.meta_path.insert(0, _Finder(tuple(packages)))


class _Finder(MetaPathFinder):
    def __init__(self, packages: tuple[str, ...]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(f"{fullname}.".startswith(f"{package}.") for package in self._packages):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        source = self.get_data(self.path)
        if not any(name.encode() in source for name in ("jaxtyping", "Frames")):
            return super().get_code(fullname)
        tree = ast.fix_missing_locations(_Decorate().visit(ast.parse(source)))
        return compile(tree, self.path, "exec", dont_inherit=True)


def _shaped(*annotations: ast.AST | None) -> bool:
    named = (node for one in annotations if one for node in ast.walk(one))
    return any(isinstance(node, ast.Name) and node.id in SHAPES for node in named)


def _decorator(node: ast.AST) -> ast.expr:
    found = ast.parse("__import__('shapes').checked", mode="eval").body
    return ast.copy_location(found, node)


class _Decorate(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Not of functions within: they are made anew in every call, and so would their checks."""
        given = node.args
        parameters = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
        if _shaped(node.returns, *(one.annotation for one in parameters if one)):
            node.decorator_list.append(_decorator(node))  # innermost: annotations are still there
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        fields = (item.annotation for item in node.body if isinstance(item, ast.AnnAssign))
        decorators = "".join(map(ast.unparse, node.decorator_list))
        if "dataclass" in decorators and _shaped(*fields):
            node.decorator_list.insert(0, _decorator(node))
        return node
