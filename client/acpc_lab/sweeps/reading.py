"""Reads a sweep file strictly: every error names the place and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from acpc.contract import did_you_mean
from acpc_client.errors import ArgumentError

from acpc_lab.extras import load

Label = str | int | float | bool
Value = TypeVar("Value")
Other = TypeVar("Other")
_DEEPEST = 20
_MAX_PLACES = 100_000
_MAX_CHARACTERS = 2**20


class SweepFileError(ArgumentError):
    """A sweep file that cannot be run as it is.

    Attributes:
        path: Place in the file, for example ``shifts[1].blur``; empty: the whole file.
        line: Line of that place, from 1; None where the document was not read from a file.
    """

    def __init__(self, path: str, description: str, line: int | None = None) -> None:
        place = path or "sweep file"
        super().__init__(place if line is None else f"line {line}: {place}", description)
        self.path = path
        self.line = line


def read_document(file: Path) -> Node:
    """Reads a YAML file, with the line of every place in it.

    Raises SweepFileError: The file cannot be read, is no YAML, or names a key twice.
    """
    yaml = load("yaml")
    from acpc.datasets import plain_yaml  # noqa: PLC0415 - needs yaml

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise SweepFileError("", f"cannot read {file}: {reason}") from error
    if len(text) > _MAX_CHARACTERS:
        raise SweepFileError("", f"has more than {_MAX_CHARACTERS} characters")
    lines: dict[str, int] = {}
    try:
        document = plain_yaml(
            text, _DEEPEST, aliases=True, look=lambda tree: _note_lines(tree, "", lines, 0)
        )
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        problem += "; text with { or [ in it needs quotes" if "{" in problem else ""
        raise SweepFileError(
            "", f"is no YAML: {problem}", None if mark is None else mark.line + 1
        ) from error
    return Node(document, "", lines)


def _note_lines(node: Any, path: str, lines: dict[str, int], depth: int) -> None:  # noqa: ANN401
    """Fills in the line of every place below a YAML node; rejects keys that stand twice."""
    if len(lines) > _MAX_PLACES or depth > _DEEPEST:  # aliases may stand in each other
        raise SweepFileError("", f"has more than {_MAX_PLACES} values or {_DEEPEST} levels")
    lines[path] = node.start_mark.line + 1
    if node.id == "sequence":
        for index, item in enumerate(node.value):
            _note_lines(item, f"{path}[{index}]", lines, depth + 1)
    if node.id == "mapping":
        seen = set()
        for key, item in node.value:
            place = _join(path, str(key.value))
            if place in seen:
                line = key.start_mark.line + 1
                raise SweepFileError(place, "stands here a second time; keep one", line)
            seen.add(place)
            _note_lines(item, place, lines, depth + 1)


@dataclass(frozen=True)
class Node:
    """A value of the document and its place."""

    value: Any
    path: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)

    def error(self, description: str) -> SweepFileError:
        """Makes an error about this value."""
        return SweepFileError(self.path, description, self.lines.get(self.path))

    def found(self, wanted: str) -> SweepFileError:
        """Makes an error that names what stands here and what should."""
        return self.error(f"found {brief(self.value)}, wanted {wanted}")

    def section(self, keys: Sequence[str], required: Sequence[str] = ()) -> Section:
        """Reads a mapping with no other keys than these."""
        if not isinstance(self.value, Mapping):
            raise self.found(f"a mapping with the keys {', '.join(keys)}")
        for key in self.value:
            if key not in keys:
                hints = [did_you_mean(str(key), keys), f"known keys: {', '.join(keys)}"]
                raise self._child(key).error(f"unknown key; {' '.join(filter(None, hints))}")
        for key in required:
            if self.value.get(key) is None:
                raise self.error(f"lacks the key {key}")
        return Section({k: self._child(k) for k, v in self.value.items() if v is not None})

    def entries(self) -> Iterator[tuple[str, Node]]:
        """Yields the entries of a mapping with any keys."""
        if not isinstance(self.value, Mapping):
            raise self.found("a mapping")
        for key in self.value:
            if not isinstance(key, str):
                raise self.error(f"found the key {key!r}, wanted text; put it in quotes")
            yield key, self._child(key)

    def items(self) -> list[Node]:
        """Reads the items of a list that is not empty."""
        if not isinstance(self.value, list | tuple) or not self.value:
            raise self.found("a list with at least one item")
        return [Node(v, f"{self.path}[{i}]", self.lines) for i, v in enumerate(self.value)]

    def one_or_many(self) -> list[Node]:
        """Reads the items of a list, or the value alone."""
        return self.items() if isinstance(self.value, list | tuple) else [self]

    def text(self) -> str:
        """Reads text that is not empty."""
        if not isinstance(self.value, str) or not self.value.strip():
            raise self.found("text" if isinstance(self.value, str) else "text; put it in quotes")
        return self.value

    def flag(self) -> bool:
        """Reads true or false."""
        if not isinstance(self.value, bool):
            raise self.found("true or false")
        return self.value

    def integer(self, least: int, most: int = 2**32 - 1) -> int:
        """Reads a whole number in a range."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.found(f"a whole number from {least}")
        if not least <= self.value <= most:
            raise self.found(f"a whole number from {least} to {most}")
        return self.value

    def number(self) -> float:
        """Reads a finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            hint = "; YAML reads 1e-3 as text, write 1.0e-3" if isinstance(self.value, str) else ""
            raise self.found(f"a number{hint}")
        if not abs(self.value) < float("inf"):
            raise self.found("a finite number")
        return float(self.value)

    def fraction(self) -> float:
        """Reads a number from 0 to 1."""
        if not 0.0 <= self.number() <= 1.0:
            raise self.found("a number from 0 to 1")
        return self.number()

    def choice(self, names: Sequence[str]) -> str:
        """Reads one of these names."""
        if self.value not in names:
            raise self.found(f"one of {', '.join(names)}")
        return str(self.value)

    def label(self) -> Label:
        """Reads text, a finite number or a truth value."""
        if not isinstance(self.value, str | int | float | bool):
            raise self.found("text or a number")
        if isinstance(self.value, float):
            return self.number()
        return self.value

    def _child(self, key: object) -> Node:
        return Node(self.value[key], _join(self.path, str(key)), self.lines)


class Section(dict[str, Node]):
    """The values of a mapping whose keys were checked; keys without a value are absent."""

    def read(self, key: str, how: Callable[[Node], Value], default: Other) -> Value | Other:
        """Reads a value, or returns the default where it is absent."""
        return how(self[key]) if key in self else default


def brief(value: object) -> str:
    """A value as Python writes it, cut where it is long."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


_TOKEN = re.compile(r"\*\*|\*|\?|\[[^\]]+\]|\{[^{}]*\}")
_GLOB = {"**": ".*", "*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True)
class Pattern:
    """A pattern of names with ``*``, ``**``, ``?``, ``[..]`` and ``{label}`` parts."""

    text: str
    labels: tuple[str, ...]
    _expression: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> Pattern:
        """Reads a pattern.

        Raises ValueError: A label that is no identifier or stands twice; says what is wrong.
        """
        expression, end, labels = "", 0, []
        for token in _TOKEN.finditer(text):
            expression += re.escape(text[end : token.start()])
            found, end = token[0], token.end()
            if found.startswith("{"):
                name = found[1:-1]
                if not name.isidentifier() or name in labels:
                    problem = "stands twice" if name in labels else "is no name for a label"
                    raise ValueError(f"{found} {problem}")
                labels.append(name)
                expression += f"(?P<{name}>[^/]+?)"
            elif found.startswith("["):
                body = found[1:-1].replace("\\", r"\\")
                expression += f"[^{body[1:]}]" if body.startswith("!") else f"[{body}]"
            else:
                expression += _GLOB[found]
        expression += re.escape(text[end:])
        return cls(text, tuple(labels), re.compile(expression))

    def match(self, name: str) -> dict[str, str] | None:
        """Returns the labels of a name as text; None when the pattern does not fit it."""
        found = self._expression.fullmatch(name)
        return None if found is None else found.groupdict()


def fill(template: str, labels: Mapping[str, str]) -> str:
    """Replaces the ``{label}`` parts of a template. Raises KeyError: A label that there is not."""
    return re.sub(r"\{(\w+)\}", lambda found: labels[found[1]], template)


def as_value(text: str) -> str | int | float:
    """Reads a label as the number it looks like: ``0.04`` is a number, ``run0`` is not."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if abs(value) < float("inf") and "_" not in text:
            return value
    return text
