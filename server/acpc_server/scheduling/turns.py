"""Lines of items whose callers go round."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import chain, zip_longest
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """Round robin between callers; first come, first served among what is one caller's.

    However many one caller has in line, it has one turn in a round. Callers with nothing in line
    cost nothing. Not safe to use from several threads at once.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()  # in the order of their turns
        self._latest = ""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        """Iterate in the order in which items will be taken if nothing else comes."""
        wrapped = ([(item,) for item in line] for line in self._lines.values())
        return chain.from_iterable(chain.from_iterable(zip_longest(*wrapped, fillvalue=())))

    def add(self, caller: str, item: T) -> None:
        """Put an item in line."""
        if caller not in self._lines:
            self._lines[caller] = deque()
            if self._latest in self._lines:  # whoever had a turn just now comes after a newcomer
                self._lines.move_to_end(self._latest)
        self._lines[caller].append(item)
        self._length += 1

    def next_caller(self, among: Callable[[str], bool]) -> str | None:
        """Return whose turn it is among some callers; None when none of them is in line."""
        return next(filter(among, self._lines), None)

    def take(self, caller: str | None = None) -> T:
        """Take the first item of ``caller``, or of whose turn it is; its turn is over."""
        caller = next(iter(self._lines)) if caller is None else caller
        line = self._lines[caller]
        self._lines.move_to_end(caller)
        self._latest = caller
        self._length -= 1
        item = line.popleft()
        if not line:
            del self._lines[caller]
        return item

    def remove(self, caller: str, item: T) -> None:
        """Take an item out of line, whoever's turn it is; ValueError when it is not in it."""
        line = self._lines.get(caller, deque())
        line.remove(item)
        self._length -= 1
        if not line:
            del self._lines[caller]
