"""Shows an answer as a table in a notebook, as a data frame of pandas, and as a picture."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from acpc.contract.optional import load_lab, load_optional

Columns = Mapping[str, Sequence[Any]]
MAX_SHOWN = 20
"""Rows that a notebook shows."""
# Loaded to draw; the lab knows this module.
_PICTURES = "acpc_lab.report"


class Tabular:
    """Base of answers that are tables too."""

    def table(self) -> Columns:
        """Columns of one length, by name."""
        raise NotImplementedError

    def headline(self) -> str:
        """The answer in a line, above its table."""
        return type(self).__name__

    def shown(self) -> Columns:
        """What a notebook shows: the table, unless there is something shorter."""
        return self.table()

    def to_dataframe(self) -> Any:
        """The table as a ``pandas.DataFrame``.

        Raises:
            FailedPrecondition: pandas is not installed; the message says how to install it.
        """
        return load_optional("pandas", "pip install pandas").DataFrame(dict(self.table()))

    def plot(self) -> Any:
        """A picture that a notebook shows; ``save`` writes it, ``figure`` is matplotlib's.

        Raises:
            FailedPrecondition: The lab's libraries are not installed; the message says how to.
            ArgumentError: There is nothing to draw.
        """
        return load_lab(_PICTURES).picture(self)

    def _repr_html_(self) -> str:
        return html_table(self.headline(), self.shown())


def html_table(title: str, columns: Columns, most: int = MAX_SHOWN) -> str:
    """A table as HTML: a title, a header, ``most`` rows, and how many there are beyond."""
    names, rows = list(columns), list(zip(*columns.values(), strict=True))
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell(value))}</td>' for value in row)}</tr>"
        for row in rows[:most]
    )
    more = f"<p>and {len(rows) - most} more rows</p>" if len(rows) > most else ""
    return (
        f"<div><p><b>{html.escape(title)}</b></p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</div>"
    )


def cell(value: Any) -> str:
    """A value in a cell: six digits of a number, a dash for None and NaN, yes and no."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float() if math.isnan(value):
            return "-"
        case float():
            return f"{value:.6g}"
    return str(value)
