"""Gives the API pages what the .proto files say of messages and fields: no docstring does."""

from __future__ import annotations

import re
from typing import Any

import griffe
from acpc.contract.help import comments

WIRE = re.compile(r"Wire\[(?:\w+\.)?(\w+)\]")

OPTIONS = (
    "ComparePairRequest", "CertifyPoolRequest", "PlanPairedRequest", "ScoreCheckpointRequest",
    "PerturbationSet",
)  # fmt: skip
"""Messages whose fields the options of the client's methods are."""


class FieldComments(griffe.Extension):
    """Documents classes that stand for a message or an enum by its comments."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:  # noqa: ANN401
        """Takes the comment of the message, and of each of its fields that the class has."""
        message = next((found[1] for base in cls.bases if (found := WIRE.match(str(base)))), "")
        if "WireEnum" in map(str, cls.bases):
            message = cls.name
        if message and cls.docstring is None:
            text = comments().get(message, "")
            cls.docstring = griffe.Docstring(text, parent=cls, parser="google")
        if cls.docstring is None:
            return
        options = cls.canonical_path.startswith("acpc_client.calls.options.")
        lines = []
        for name in cls.attributes:
            said = (comments().get(f"{one}.{name}") for one in (OPTIONS if options else [message]))
            if f"  {name}: " not in cls.docstring.value and (text := next(filter(None, said), "")):
                lines.append(f"    {name}: {text}")
        if lines:
            head = [] if "Attributes:\n" in cls.docstring.value else ["", "Attributes:"]
            cls.docstring.value = "\n".join([cls.docstring.value.rstrip(), *head, *lines])
