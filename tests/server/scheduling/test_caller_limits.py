"""What callers may hold at a time: limits and fair shares."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from acpc_server.errors import ResourceExhausted
from acpc_server.scheduling import CallerLimits, Quota, Resource

CALLS, STREAMS = Resource.CALLS, Resource.STREAMS


@contextmanager
def entered(limits: CallerLimits, caller: str, *what: Resource) -> Iterator[None]:
    leave = limits.enter(caller, *what)
    try:
        yield
    finally:
        leave()


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
    limits = CallerLimits(Quota(streams=1), 2)
    with entered(limits, "a", CALLS, STREAMS):
        for _ in range(3):
            with pytest.raises(ResourceExhausted, match="1 streams under way, 1 of this caller"):
                limits.enter("a", CALLS, STREAMS)
        assert reason(limits, "a", CALLS) == ""


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
