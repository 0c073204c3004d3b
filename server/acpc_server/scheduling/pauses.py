"""Places inside a long device call where its thread may do something short first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Own(threading.local):
    at_pause: Callable[[], None] | None = None


_own = _Own()


def pause() -> None:
    """Called by a network between two of its layers, many times in a call."""
    if _own.at_pause is not None:
        _own.at_pause()


@contextmanager
def pausing(at_pause: Callable[[], None] | None) -> Iterator[None]:
    """Have this thread call ``at_pause`` at every :func:`pause` in the block; nothing when None."""
    before, _own.at_pause = _own.at_pause, at_pause
    try:
        yield
    finally:
        _own.at_pause = before
