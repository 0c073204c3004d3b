"""Reads a sweep file: plain values with their lines, patterns of names, and visual shifts."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acpc.contract import KINDS, did_you_mean, from_plain, joined, kind_named, parse_grid
from acpc_client import Perturbation
from acpc_client.errors import ArgumentError

from acpc_lab.extras import load

Label = str | int | float | bool
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


def found(value: object, wanted: str, at: str = "") -> ArgumentError:
    """Words what stands in a place, and what should."""
    return ArgumentError(at, f"found {brief(value)}, wanted {wanted}")


def known_keys(
    value: object, keys: Sequence[str], required: Sequence[str] = (), at: str = ""
) -> dict[str, Any]:
    """Returns what a mapping holds, of which every key must be one of these.

    Raises ArgumentError: It is no mapping, has another key, or lacks a required one.
    """
    if not isinstance(value, Mapping):
        raise found(value, f"a mapping with the keys {', '.join(keys)}", at)
    for key in value:
        if key not in keys:
            hints = [did_you_mean(str(key), keys), f"known keys: {', '.join(keys)}"]
            words = f"unknown key; {' '.join(filter(None, hints))}"
            raise ArgumentError(joined(at, str(key)), words)
    given = {key: item for key, item in value.items() if item is not None}
    for key in required:
        if key not in given:
            raise ArgumentError(at, f"lacks the key {key}")
    return given


@dataclass(frozen=True)
class Document:
    """What a file says, and the line of every place in it."""

    value: Any
    lines: Mapping[str, int] = field(default_factory=dict)

    def error(self, path: str, description: str) -> SweepFileError:
        """Makes an error about a place, or about the nearest one around it that is in the file."""
        while self.lines and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return SweepFileError(path, description, self.lines.get(path))


def read_document(file: Path) -> Document:
    """Reads a YAML file, with the line of every place in it.

    Raises SweepFileError: The file cannot be read, is no YAML, or names a key twice.
    """
    try:
        return as_document(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise SweepFileError("", f"cannot read {file}: {reason}") from error


def as_document(text: str) -> Document:
    """Reads YAML, with the line of every place in it.

    Raises SweepFileError: It is no YAML, or names a key twice.
    """
    yaml = load("yaml")
    from acpc.datasets import plain_yaml  # noqa: PLC0415 - needs yaml

    if len(text) > _MAX_CHARACTERS:
        raise SweepFileError("", f"has more than {_MAX_CHARACTERS} characters")
    lines: dict[str, int] = {}
    try:
        document = plain_yaml(
            text, _DEEPEST, aliases=True, look=lambda tree: _note_lines(tree, "", lines, 0)
        )
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        problem += "; text with { or [ in it needs quotes" if "{" in problem else ""
        raise SweepFileError(
            "", f"is no YAML: {problem}", None if mark is None else mark.line + 1
        ) from error
    return Document(document, lines)


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
            place = joined(path, str(key.value))
            if place in seen:
                line = key.start_mark.line + 1
                raise SweepFileError(place, "stands here a second time; keep one", line)
            seen.add(place)
            _note_lines(item, place, lines, depth + 1)


def brief(value: object) -> str:
    """A value as Python writes it, cut where it is long."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def some(names: Sequence[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


_TOKEN = re.compile(r"(\*\*|\*|\?|\[[^\]]+\]|\{[^{}]*\})")
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

        Raises ArgumentError: A label that is no identifier or stands twice.
        """
        expression, labels = "", []
        for index, part in enumerate(_TOKEN.split(text)):
            if index % 2 == 0:  # what stands between tokens
                expression += re.escape(part)
            elif part.startswith("{"):
                name = part[1:-1]
                if not name.isidentifier() or name in labels:
                    problem = "stands twice" if name in labels else "is no name for a label"
                    raise ArgumentError("", f"{part} {problem}")
                labels.append(name)
                expression += f"(?P<{name}>[^/]+?)"
            elif part.startswith("["):
                body = part[1:-1].replace("\\", r"\\")
                expression += f"[^{body[1:]}]" if body.startswith("!") else f"[{body}]"
            else:
                expression += _GLOB[part]
        try:
            return cls(text, tuple(labels), re.compile(expression))
        except re.error as error:
            raise ArgumentError("", f"{text!r:.100} is no pattern: {error.msg}") from error

    def match(self, name: str) -> dict[str, str] | None:
        """Returns the labels of a name as text; None when the pattern does not fit it."""
        found = self._expression.fullmatch(name)
        return None if found is None else found.groupdict()


def fill(template: str, labels: Mapping[str, str]) -> str:
    """Replaces the ``{label}`` parts of a template; raises ArgumentError for an unknown one."""
    try:
        return re.sub(r"\{(\w+)\}", lambda found: labels[found[1]], template)
    except KeyError as missing:
        known = ", ".join(labels) or "none"
        words = f"names the label {missing}, which this item lacks; it has {known}"
        raise ArgumentError("", f"{template!r} {words}") from missing


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


def read_shifts(value: object) -> tuple[Perturbation, ...]:
    """Reads every shift of a list, severities one by one.

    Raises ArgumentError: An unknown kind or parameter, a bad value, or a shift that stands twice.
    """
    if not isinstance(value, list | tuple) or not value:
        raise found(value, "a list with at least one item")
    read: dict[str, Perturbation] = {}
    for index, item in enumerate(value):
        for shift in _read_item(item, f"[{index}]"):
            if str(shift) in read:
                raise ArgumentError(f"[{index}]", f"{shift} stands here a second time; keep one")
            read[str(shift)] = shift
    return tuple(read.values())


def _read_item(item: object, at: str) -> Iterator[Perturbation]:
    if isinstance(item, str):
        # YAML reads "- blur:[9, 15]" without a space as text.
        yield from _short(re.sub(r"[\[\]\s]", "", item), at)
        return
    if not isinstance(item, Mapping) or len(item) != 1:
        raise found(item, "one kind with its severities, for example gaussian_noise: [0.02]", at)
    ((kind, value),) = item.items()
    at = f"{at}.{kind}"
    several = isinstance(value, list | tuple)
    for index, severity in enumerate(value if several else [value]):
        place = f"{at}[{index}]" if several else at
        if isinstance(severity, Mapping):
            yield from _by_name(str(kind), severity, place)
        elif isinstance(severity, str | int | float) and not isinstance(severity, bool):
            yield from _short(f"{kind}:{severity}", place)
        else:
            raise found(severity, f"a severity of {kind}, or its parameters by name", place)


def _short(text: str, at: str) -> list[Perturbation]:
    try:
        return parse_grid(text)
    except ArgumentError as error:
        raise ArgumentError(at, error.description) from error


def _by_name(kind: str, given: Mapping[str, Any], at: str) -> Iterator[Perturbation]:
    """Yields shifts by parameters: lists are severities, several lists all combinations."""
    cls = KINDS.get(kind_named(kind))
    if cls is None:
        guess = did_you_mean(kind, KINDS, f"wanted one of {', '.join(KINDS)}")
        raise ArgumentError(at, f"found the kind {kind!r}; {guess}")
    fields = dataclasses.fields(cls)
    bare = [x for x in fields if x.default is dataclasses.MISSING]
    required = [x.name for x in bare if x.default_factory is dataclasses.MISSING]
    parameters = known_keys(given, [item.name for item in fields], required, at)
    choices = [
        [(name, _plain(item)) for item in (value if isinstance(value, list) else [value])]
        for name, value in parameters.items()
    ]
    for combination in itertools.product(*choices):
        yield from_plain(cls, dict(combination), at)


def _plain(value: object) -> object:
    """A parameter; the numbers of a mapping as floats, as a request has them."""
    if not isinstance(value, Mapping):
        return value
    return {k: float(x) if type(x) is int else x for k, x in value.items()}
