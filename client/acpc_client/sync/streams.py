"""The request side of a stream: what it raises must surface where the answers are read."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from acpc_client.inputs import Pair


class Feed:
    """Turns pairs into messages and remembers what ended them.

    gRPC reads requests in a thread or task of its own, where an exception would only be logged
    and the caller would see a bare CANCELLED.

    Args:
        encode: Makes the message of one pair.
    """

    def __init__(self, encode: Callable[[Pair], Any]) -> None:
        self._encode = encode
        self._failure: BaseException | None = None

    def items(self, pairs: Iterable[Pair]) -> Iterator[Any]:
        """The messages of ``pairs``; ends early at the first failure."""
        try:
            for pair in pairs:
                yield self._encode(pair)
        except Exception as failure:  # noqa: BLE001 - raised again by check()
            self._failure = failure

    async def async_items(self, pairs: Iterable[Pair] | AsyncIterable[Pair]) -> AsyncIterator[Any]:
        """``items`` for either kind of iterable, in an event loop."""
        if not isinstance(pairs, AsyncIterable):
            for item in self.items(pairs):
                yield item
            return
        try:
            async for pair in pairs:
                yield self._encode(pair)
        except Exception as failure:  # noqa: BLE001 - raised again by check()
            self._failure = failure

    def check(self) -> None:
        """Raises what ended the pairs early, if anything did."""
        if self._failure is not None:
            raise self._failure
