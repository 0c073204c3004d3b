"""The anchors of an upload as shards ready to be sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from acpc.v1 import anchor_service_pb2 as pb

from acpc_client.anchor_arrays import AnchorArrays, Digest, digest_of
from acpc_client.calls import anchors as calls
from acpc_client.errors import ArgumentError


class Shard(NamedTuple):
    """A shard that was made and may have to be sent again; ``stop`` is the anchor after it."""

    message: pb.AnchorShard
    stop: int


class Source:
    """Where shards come from: whole arrays, again and again, or parts, which are read once.

    Args:
        anchors: All anchors, or an iterable of parts.
        count: Anchors of all parts together.
        compress: Whether frames are deflated.

    Attributes:
        total: Anchors in all.
        history: Frames of history; known once ``prepare`` was called, like the ones below.
        horizon: Future frames.
        expected: Digest of whole arrays; empty for parts.

    Raises:
        ArgumentError: The count does not fit the anchors.
    """

    def __init__(
        self, anchors: AnchorArrays | Iterable[AnchorArrays], count: int | None, compress: bool
    ) -> None:
        self._whole = anchors if isinstance(anchors, AnchorArrays) else None
        self._parts = iter(()) if isinstance(anchors, AnchorArrays) else iter(anchors)
        self._cuts: Iterator[AnchorArrays] = iter(())
        self._compress = compress
        self._digest = Digest(0)
        self.total = _count(self._whole, count)
        self.history = self.horizon = 0
        self.expected = ""

    @property
    def read(self) -> int | None:
        """Anchors of the parts read so far, which cannot be read again; None for whole arrays."""
        return len(self._digest) if self._whole is None else None

    def prepare(self) -> None:
        """Reads whole arrays once, for their digest, or the first part.

        Raises:
            ArgumentError: There is no part.
        """
        first = self._whole
        if first is None:
            first = next(self._parts, None)
            if first is None:
                raise ArgumentError("anchors", "found no part, wanted at least one")
            parts = chain([first], self._parts)
            self._cuts = (cut for part in parts for cut in part.cuts())
        else:
            self.expected = digest_of(first)
        self.history, self.horizon = first.history, first.horizon
        self._digest = Digest(first.history)

    def shards(self, start: int) -> Iterator[Shard]:
        """Shards from anchor ``start`` on; of parts, no earlier than ``read``.

        Raises:
            ArgumentError: A part does not fit the first one, or the count.
        """
        offset = start if self._whole is not None else len(self._digest)
        for cut in self._cuts if self._whole is None else self._whole.cuts(start):
            if self._whole is None:
                self._take(cut, offset)
            skipped = max(0, start - offset)
            if skipped < len(cut):
                rest = cut.part(skipped, len(cut)) if skipped else cut
                message = calls.shard(rest, offset + skipped, self._compress)
                yield Shard(message, offset + len(cut))
            offset += len(cut)

    def _take(self, cut: AnchorArrays, offset: int) -> None:
        if (cut.history, cut.horizon) != (self.history, self.horizon):
            raise ArgumentError(
                "anchors",
                f"found a part of history {cut.history} and horizon {cut.horizon} after one of "
                f"{self.history} and {self.horizon}",
            )
        if offset + len(cut) > self.total:
            raise ArgumentError("anchors", f"found more anchors than count, {self.total}")
        self._digest.add(cut)

    def digest(self) -> str:
        """Digest of everything; empty while parts are left to be read."""
        if self._whole is None and len(self._digest) == self.total:
            return self._digest.value()
        return self.expected


def _count(whole: AnchorArrays | None, count: int | None) -> int:
    if whole is None:
        if count is None:
            raise ArgumentError("count", "say how many anchors the parts have together")
        return count
    if count not in (None, len(whole)):
        raise ArgumentError("count", f"found {count}, but there are {len(whole)} anchors")
    return len(whole)
