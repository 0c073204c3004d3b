"""YAML of plain values, of which no small file is expensive to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml

MAX_DEPTH = 8
# libyaml takes linear time where the scanner in Python takes quadratic.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# The limit of its own, of 1000 levels, that PyYAML's C parser has from 6.0.4 on.
_PARSERS_OWN_DEPTH = "exceeded maximum nesting depth"
# What constructors of a tag raise for a text that is none of its values.
_MISFITS = (ValueError, KeyError, AttributeError, TypeError)


class _PlainLoader(_Base):  # type: ignore[misc]
    """Safe YAML that rejects a key given twice, of which YAML would take the last."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        with _fitting(node):
            return super().construct_object(node, deep)

    def construct_document(self, node: yaml.Node) -> object:
        with _fitting(node):  # what collections hold is made last
            return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key, times in Counter(keys).items():
            if times > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is given twice", node.start_mark
                )
        found: dict[object, object] = super().construct_mapping(node, deep)
        return found


@contextmanager
def _fitting(node: yaml.Node) -> Iterator[None]:
    try:
        yield
    except _MISFITS as error:
        what = f"a value that is no {node.tag.rpartition(':')[2]} ({error})"
        raise yaml.constructor.ConstructorError(None, None, what, node.start_mark) from error


def plain_yaml(
    text: str,
    max_depth: int = MAX_DEPTH,
    *,
    aliases: bool = False,
    look: Callable[[yaml.Node], None] = lambda _: None,
) -> object:
    """Return what YAML of plain values says; ``look`` is given its nodes before values are made.

    Raises yaml.YAMLError: No YAML, a key given twice, or what makes a small file expensive: deep
    nesting and, unless allowed, ``aliases``, which multiply.
    """
    depth, too_deep = 0, f"nested deeper than {max_depth} levels"
    try:
        for event in yaml.parse(text, _PlainLoader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            mark: Any = event.start_mark
            if depth > max_depth:
                raise yaml.MarkedYAMLError(problem=too_deep, problem_mark=mark)
            if not aliases and isinstance(event, yaml.AliasEvent):
                raise yaml.MarkedYAMLError(problem="aliases are not read", problem_mark=mark)
    except yaml.MarkedYAMLError as error:
        if error.problem == _PARSERS_OWN_DEPTH:
            error.context, error.problem = None, too_deep
        raise
    except ValueError as error:  # a character that is none, of the scanner in Python
        raise yaml.YAMLError(str(error)) from error
    loader = _PlainLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        look(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()
