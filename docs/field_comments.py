"""Gives the API pages what the .proto files say of messages and fields: no docstring does."""

from __future__ import annotations

import re
from typing import Any

import griffe
from acpc.contract.help import comments

WIRE = re.compile(r"Wire\[(?:\w+\.)?(\w+)\]")


class FieldComments(griffe.Extension):
    """Documents each class that stands for a message by its comment, and its attributes."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:  # noqa: ANN401
        """Takes the comment of the message, and of every field of it that the class has."""
        message = next((found[1] for base in cls.bases if (found := WIRE.match(str(base)))), "")
        named = {name: comments().get(f"{message}.{name}", "") for name in cls.attributes}
        lines = [f"    {name}: {text}" for name, text in named.items() if text]
        if message and cls.docstring is None:
            cls.docstring = griffe.Docstring(
                comments().get(message, ""), parent=cls, parser="google"
            )
        if lines and cls.docstring is not None:
            cls.docstring.value += "\n\n" + "\n".join(["Attributes:", *lines])
