"""A stream whose caller has gone quiet must not be held for ever."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from acpc_server.errors import DeadlineExceeded

Message = TypeVar("Message")


def within(
    messages: Iterator[Message], seconds: float, *, hint: str, reason: str
) -> Generator[Message, None, None]:
    """The messages of a stream as they come, each within ``seconds`` of being waited for.

    gRPC waits for a message without end, so a thread of its own waits and this one looks at the
    clock. That thread ends with the call.

    Args:
        messages: The stream.
        seconds: Longest silence.
        hint: What the caller should do after one.
        reason: Its reason on the wire.

    Raises:
        DeadlineExceeded: No message came in time.
    """
    reader = ThreadPoolExecutor(1, thread_name_prefix="stream-reader")
    try:
        while True:
            coming = reader.submit(next, messages, None)
            try:
                message = coming.result(seconds)
            except TimeoutError:
                raise DeadlineExceeded(
                    f"no message for {seconds:g} seconds; {hint}", reason=reason
                ) from None
            if message is None:
                return
            yield message
    finally:
        reader.shutdown(wait=False)
