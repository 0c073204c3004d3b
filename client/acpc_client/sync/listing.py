"""What a list call answers: read page by page, or as a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, overload

from acpc.contract import Columns, Tabular

Item = TypeVar("Item")


class Listing(Tabular, Sequence[Item]):
    """Records of the server, in its order.

    Iterating fetches pages as they are read. What needs all of them (``len``, an index, the table)
    fetches the rest; a page that failed is asked for again.

    Args:
        fetch: The items of the page with a token, and the token of the next page.
    """

    def __init__(self, fetch: Callable[[str], tuple[Sequence[Item], str]]) -> None:
        self._fetch = fetch
        self._items: list[Item] = []
        self._token: str | None = ""

    def _more(self) -> bool:
        """Fetches one page; False when there is none."""
        if self._token is None:
            return False
        items, token = self._fetch(self._token)
        self._items += items
        self._token = token or None
        return True

    def _all(self) -> list[Item]:
        while self._more():
            pass
        return self._items

    def __iter__(self) -> Iterator[Item]:
        at = 0
        while at < len(self._items) or self._more():
            yield from self._items[at:]
            at = len(self._items)

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        return self._all()[index]

    def table(self) -> Columns:
        """The fields of every record that hold a plain value in one of them."""
        rows: list[dict[str, object]] = [item.to_dict() for item in self._all()]  # type: ignore[attr-defined]
        columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
        return {name: values for name, values in columns.items() if _is_plain(values)}

    def headline(self) -> str:
        """How many records there are."""
        return "1 record" if len(self) == 1 else f"{len(self)} records"


def _is_plain(values: Sequence[object]) -> bool:
    nested = any(isinstance(value, dict | list) for value in values)
    return not nested and any(value is not None for value in values)
