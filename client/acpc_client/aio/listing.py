"""What a list call of the asyncio client answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")


class AsyncListing(Generic[Item]):
    """Records of the server, in its order; pages are fetched as they are read."""

    def __init__(self, fetch: Callable[[str], Awaitable[tuple[Sequence[Item], str]]]) -> None:
        self._fetch = fetch

    async def __aiter__(self) -> AsyncIterator[Item]:
        token = ""
        while True:
            items, token = await self._fetch(token)
            for item in items:
                yield item
            if not token:
                return

    async def all(self) -> list[Item]:
        """Every record, for ``len`` and indices."""
        return [item async for item in self]
