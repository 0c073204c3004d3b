"""Slots for messages: who waits gets one, however those before leave theirs."""

from __future__ import annotations

import asyncio
from typing import Any

from acpc_server.errors import AcpcError
from acpc_server.rpc import ReadLimit, Receiver
from waiting import GENEROUS_SECONDS

LIMIT = ReadLimit(seconds=10 * GENEROUS_SECONDS)


class Caller:
    """A call that sends nothing, or all at once."""

    caller = "one host"

    def __init__(self, data: bytes | None) -> None:
        self._data = data
        self._task: asyncio.Task[bytes | None] | None = None
        self.life = self

    async def receive(self) -> bytes | None:
        return self._data or await asyncio.Future()

    def interrupt(self, error: AcpcError) -> None:
        assert self._task is not None
        self._task.cancel()

    def reads(self, receiver: Receiver) -> asyncio.Task[bytes | None]:
        given: Any = self
        self._task = asyncio.create_task(receiver.read(given, LIMIT))
        return self._task


def test_slots_that_are_left_at_once_are_pressed_for_again() -> None:
    """Both slots change hands together: for a moment no read is under way, and others wait."""

    async def run() -> bytes | None:
        receiver = Receiver(2, grace=0.01)
        silent = [Caller(None).reads(receiver) for _ in range(5)]
        await asyncio.sleep(0)
        last = await asyncio.wait_for(Caller(b"whole").reads(receiver), GENEROUS_SECONDS)
        for task in silent:
            task.cancel()
        await asyncio.gather(*silent, return_exceptions=True)
        return last

    assert asyncio.run(run()) == b"whole"
