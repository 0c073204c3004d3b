"""A device call is timed by itself, and not while the process was stopped.

tests/e2e/test_device_failures.py has processes that are ended.
"""

import pytest
from acpc_server.watchdog import CallTime

CASES = {
    "time counts from the first look": ([("call 1", 2.0), ("call 1", 1.0), ("call 1", 1.5)], 2.5),
    "another call begins again": ([("call 1", 2.0), ("call 1", 2.0), ("call 2", 2.0)], 0.0),
    "as after a rest": ([("call 1", 1.0), ("call 1", 1.0), ("", 1.0), ("call 1", 1.0)], 0.0),
    "no call lasts": ([("", 1.0), ("", 1.0)], 0.0),
    "a stopped process computes nothing": ([("call 1", 1.0), ("call 1", 1e6)], 2.0),
}


@pytest.mark.parametrize("case", CASES)
def test_how_long_a_call_has_lasted(case: str) -> None:
    looks, seconds = CASES[case]
    timed = CallTime()
    assert [timed.observe(*look) for look in looks][-1] == seconds
