"""Slots for messages: who waits gets one, however those before leave theirs."""

import asyncio
import math
import time
from typing import Any

import pytest
from acpc_server.errors import AcpcError, HostShortage
from acpc_server.rpc import ReadLimit, Receiver, receiving
from waiting import GENEROUS_SECONDS

LIMIT = ReadLimit(seconds=10 * GENEROUS_SECONDS)


class Caller:
    """A call that sends nothing, or all at once."""

    def __init__(self, data: bytes | None, caller: str = "one host") -> None:
        self._data = data
        self.caller = caller
        self._task: asyncio.Task[bytes | None] | None = None
        self.life = self

    async def receive(self) -> bytes | None:
        return self._data or await asyncio.Future()

    def interrupt(self, error: AcpcError) -> None:
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


def test_the_last_slots_are_for_callers_that_have_few() -> None:
    async def run() -> None:
        receiver = Receiver(8)
        silent = [Caller(None, "many").reads(receiver) for _ in range(100)]
        await asyncio.sleep(0)
        for name in ("one", "another"):
            task = Caller(b"whole", name).reads(receiver)
            await asyncio.sleep(0)
            assert task.done(), "nobody has to be crowded out first"
            assert task.result() == b"whole"
        for task in silent[:4]:
            task.cancel()
        await asyncio.sleep(0)
        another = [Caller(None, "another").reads(receiver)]
        last = Caller(b"whole", "one").reads(receiver)
        await asyncio.sleep(0)
        assert last.done(), "what has become free has not all gone to who waits with many"
        for task in (*silent, *another):
            task.cancel()
        await asyncio.gather(*silent, *another, return_exceptions=True)
        assert await Caller(b"whole", "many").reads(receiver) == b"whole", "every slot came back"

    asyncio.run(asyncio.wait_for(run(), GENEROUS_SECONDS))


@pytest.mark.parametrize("beside", [0, 1])
def test_nobody_is_crowded_out_while_a_slot_is_free(beside: int) -> None:
    """Who waits then has its share, and waits for its own reads, however slow."""

    async def run() -> None:
        receiver = Receiver(8, grace=0.01)
        reads = [Caller(None, "other").reads(receiver) for _ in range(beside)]
        reads += [Caller(None, "many").reads(receiver) for _ in range(12)]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in reads)
        last = [Caller(None, name).reads(receiver) for name in ("new", "newer", "newest")]
        first = asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait(reads, timeout=GENEROUS_SECONDS, return_when=first)
        assert done, "once none is free somebody has to yield"
        for task in (*reads, *last):
            task.cancel()
        await asyncio.gather(*reads, *last, return_exceptions=True)

    asyncio.run(run())


def test_nobody_yields_to_a_crowd_whose_caller_has_more_slots() -> None:
    """Nor on a busy host, whose event loop comes too late to see what has arrived."""

    async def run() -> None:
        receiver = Receiver(4, grace=0.01)
        many = [Caller(None, "many").reads(receiver) for _ in range(20)]
        await asyncio.sleep(0)
        slow = Caller(None, "slow").reads(receiver)
        await asyncio.sleep(0)
        time.sleep(0.05)
        first = asyncio.FIRST_COMPLETED
        crowded_out, _ = await asyncio.wait(many, timeout=GENEROUS_SECONDS, return_when=first)
        await asyncio.sleep(0)
        assert crowded_out
        assert not slow.done()
        for task in (slow, *many):
            task.cancel()
        await asyncio.gather(slow, *many, return_exceptions=True)

    asyncio.run(run())


def test_late_reads_end_one_by_one() -> None:
    """A read that ends meanwhile, because of the one before, is left alone."""

    async def run() -> None:
        receiver = Receiver(16)
        reads = [Caller(None).reads(receiver) for _ in range(10)]
        await asyncio.sleep(0)
        steps = receiver.sweep(math.inf)
        next(steps)
        await asyncio.sleep(0)
        assert [task.done() for task in reads] == [True] + 9 * [False]
        reads[1].cancel()
        await asyncio.sleep(0)
        assert len(list(steps)) == 8
        await asyncio.gather(*reads, return_exceptions=True)
        assert not list(receiver.sweep(math.inf))

    asyncio.run(run())


@pytest.mark.parametrize("large", [False, True])
def test_a_look_at_the_memory_counts_for_what_it_found(
    monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    """Small messages share a look; of large ones, arrived or under way, each is looked for."""
    looks: list[int] = []

    def look(wanted: int) -> str:
        looks.append(wanted)
        return "too much" if wanted > most else ""

    most = 2000
    monkeypatch.setattr(receiving, "memory_short", look)
    monkeypatch.setattr(receiving, "LOOK_SECONDS", GENEROUS_SECONDS)

    async def run() -> None:
        nonlocal most
        receiver = Receiver(16, memory=200)
        for _ in range(10):
            await Caller(bytes(100 if large else 1)).reads(receiver)
        assert looks == [400] * (5 if large else 1)
        silent = [Caller(None).reads(receiver) for _ in range(5)]
        await asyncio.sleep(0)
        assert looks[-1] >= 1000
        most = 1200
        last = [Caller(None).reads(receiver) for _ in range(2)]
        await asyncio.sleep(0)
        for task in (*silent, *last[:1]):
            task.cancel()
        first, second = await asyncio.gather(*last, return_exceptions=True)
        await asyncio.gather(*silent, return_exceptions=True)
        assert isinstance(first, asyncio.CancelledError)
        assert isinstance(second, HostShortage)

    asyncio.run(run())
