"""What callers may hold at a time: limits, fair shares, and what is remembered of them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from acpc_server.errors import ResourceExhausted
from acpc_server.scheduling import CallerLimits, Pace, Quota, Resource, callers
from clocks import Clock

CALLS, STREAMS = Resource.CALLS, Resource.STREAMS


@contextmanager
def entered(limits: CallerLimits, caller: str, *what: Resource) -> Iterator[None]:
    limits.enter(caller, *what)
    try:
        yield
    finally:
        limits.leave(caller, *what)


def reason(limits: CallerLimits, caller: str, *what: Resource) -> str:
    """Why a caller may not enter now; empty when it may. It leaves at once."""
    try:
        with entered(limits, caller, *what):
            return ""
    except ResourceExhausted as error:
        assert error.retry_after > 0
        return error.reason


def test_a_caller_is_rejected_above_its_calls_and_others_are_not() -> None:
    limits = CallerLimits(Quota(), 2)
    with entered(limits, "a", CALLS), entered(limits, "a", CALLS, STREAMS):
        assert reason(limits, "a", CALLS) == "TOO_MANY_CALLS"
        assert reason(limits, "b", CALLS) == ""
    assert reason(limits, "a", CALLS) == ""


def test_a_rejection_names_the_limit_and_counts_nothing() -> None:
    limits = CallerLimits(Quota(streams=1))
    with entered(limits, "a", CALLS, STREAMS):
        with pytest.raises(ResourceExhausted, match="1 streams under way, 1 of this caller"):
            limits.enter("a", CALLS, STREAMS)
        assert limits.used(CALLS) == 1


def test_one_caller_with_very_many_leaves_the_last_places_to_others() -> None:
    limits = CallerLimits(Quota(calls=40))
    with ExitStack() as held:
        taken = 0
        while not reason(limits, "greedy", CALLS):
            held.enter_context(entered(limits, "greedy", CALLS))
            taken += 1
        assert taken == 30, "three quarters"
        for _ in range(5):
            held.enter_context(entered(limits, "modest", CALLS))
        assert reason(limits, "greedy", CALLS) == "TOO_MANY_CALLS"
        assert reason(limits, "newcomer", CALLS) == ""


def test_a_newcomer_gets_in_while_there_is_any_place_and_none_when_all_are_taken() -> None:
    limits = CallerLimits(Quota(streams=8))
    with ExitStack() as held:
        for caller in range(8):
            held.enter_context(entered(limits, str(caller), STREAMS))
            assert reason(limits, "0", STREAMS) == ("" if caller < 5 else "TOO_MANY_STREAMS")
        assert reason(limits, "late", STREAMS) == "TOO_MANY_STREAMS"
    assert reason(limits, "late", STREAMS) == ""


def test_what_is_paced_begins_later_up_to_a_limit_and_is_forgotten_in_time() -> None:
    clock = Clock(100.0)
    pace = Pace(50.0, burst=100, most=0.8, clock=clock)
    pauses = [pace.pause("a") for _ in range(150)]
    assert pauses[:100] == [0.0] * 100
    assert pauses[100:140] == pytest.approx([number / 50 for number in range(1, 41)])
    assert pauses[140:] == pytest.approx([0.8] * 10)
    assert pace.pause("b") == 0.0, "another caller's are its own"
    clock.now += 0.82
    assert pace.pause("a") == pytest.approx(0.0), "what began at the limit is not owed for"
    assert len(pace) == 1, "what b did limits it no longer"
    clock.now += 3.0
    assert pace.pause("c") == 0.0
    assert len(pace) == 1


def test_of_many_callers_that_are_paced_the_oldest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callers, "MAX_RESTING", 10)
    pace = Pace(1.0, burst=1, most=1.0, clock=Clock(100.0))
    for number in range(100):
        pace.pause(str(number))
    assert len(pace) <= 11


def test_callers_that_have_left_are_forgotten() -> None:
    limits = CallerLimits(Quota(calls=8), 4)
    for number in range(1000):
        assert reason(limits, str(number), CALLS) == ""
    assert limits.known == 0


def test_many_threads_leave_nothing_behind() -> None:
    limits = CallerLimits(Quota(calls=1000), 4)

    def work(number: int) -> int:
        return sum(not reason(limits, str(number % 7), CALLS) for _ in range(300))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) > 0
    assert limits.used(CALLS) == 0
    assert limits.known == 0
