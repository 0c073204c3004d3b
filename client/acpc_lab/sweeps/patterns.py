"""Patterns of checkpoint names: globs whose named parts become labels.

``*`` and ``?`` stand for characters of one path part, ``**`` for any, ``[ab]`` for one of a set,
and ``{label}`` for characters of one path part that are kept as that label.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TOKEN = re.compile(r"\*\*|\*|\?|\[[^\]]+\]|\{[^{}]*\}")
_GLOB = {"**": ".*", "*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True)
class Pattern:
    """One pattern.

    Attributes:
        text: As it stands in the file.
        labels: Names of its labels.
    """

    text: str
    labels: tuple[str, ...]
    _expression: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> Pattern:
        """Reads a pattern.

        Raises:
            ValueError: A label that is no identifier or stands twice; says what is wrong.
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

    @property
    def literal(self) -> bool:
        """Whether it can match one name only."""
        return _TOKEN.search(self.text) is None

    def match(self, name: str) -> dict[str, str] | None:
        """The labels of a name as text, or None when the pattern does not fit it."""
        found = self._expression.fullmatch(name)
        return None if found is None else found.groupdict()


def fill(template: str, labels: Mapping[str, str]) -> str:
    """``template`` with its ``{label}`` parts replaced.

    Raises:
        KeyError: A label that there is not.
    """
    return re.sub(r"\{(\w+)\}", lambda found: labels[found[1]], template)


def as_value(text: str) -> str | int | float:
    """A label's text as the number it looks like; ``0.04`` is a number, ``run0`` is not."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if abs(value) < float("inf") and "_" not in text:
            return value
    return text
