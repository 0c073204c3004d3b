"""Prepares the next piece of work while the caller is busy with this one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


@contextmanager
def prepared_ahead(prepare: Callable[[T], U], items: Sequence[T]) -> Iterator[Iterator[U]]:
    """What ``prepare`` makes of every item, in order, each made while the one before is in use.

    One item is made at a time, in a thread of its own, and at most one waits, so that two are held.
    What ``prepare`` raises is raised where its result would have come. The thread has ended when
    the block is left, at once unless it is at work on an item.
    """
    with closing(_ahead(prepare, items)) as results:
        yield results


def _ahead(prepare: Callable[[T], U], items: Sequence[T]) -> Generator[U, None, None]:
    if len(items) < 2:
        yield from map(prepare, items)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="prepare") as thread:
        upcoming = thread.submit(copy_context().run, prepare, items[0])
        for item in items[1:]:
            ready = upcoming.result()
            upcoming = thread.submit(copy_context().run, prepare, item)
            yield ready
            del ready  # not held while the next one is waited for
        yield upcoming.result()
