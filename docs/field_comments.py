"""Gives the API pages what the .proto files say of each field, which no docstring repeats."""

from __future__ import annotations

import re
from typing import Any

import griffe
from acpc.contract.help import comments

WIRE = re.compile(r"Wire\[(?:\w+\.)?(\w+)\]")


class FieldComments(griffe.Extension):
    """Adds a section of attributes to each class that stands for a message."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:  # noqa: ANN401
        """Appends the comment of every field of the message that the class has."""
        message = next((found[1] for base in cls.bases if (found := WIRE.match(str(base)))), "")
        named = {name: comments().get(f"{message}.{name}", "") for name in cls.attributes}
        lines = [f"    {name}: {text}" for name, text in named.items() if text]
        if lines and cls.docstring is not None:
            cls.docstring.value += "\n\n" + "\n".join(["Attributes:", *lines])
