"""The terminal of every command: what comes from elsewhere is shown, and moves nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console as RichConsole
from rich.segment import Segment
from typer.core import TyperGroup

KEPT = "\n\t\xa0"


class Console(RichConsole):
    """A console that escapes control characters in whatever text it shows."""

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:  # noqa: ANN401
        """Makes the segments of something to show."""
        for segment in super().render(renderable, options):
            plain = segment.control or segment.text.isprintable()
            yield segment if plain else segment._replace(text=escaped(segment.text))


class CommandGroup(TyperGroup):
    """A group of commands that says what is wrong with an option in its own words."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's own
        """Runs a command; an error lacks the prefix that pydantic puts before it."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


def escaped(text: str) -> str:
    """The text with its control characters as Python writes them, but for line ends and tabs."""
    return "".join(x if x.isprintable() or x in KEPT else ascii(x)[1:-1] for x in text)
