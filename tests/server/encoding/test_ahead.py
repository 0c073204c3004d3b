"""The next piece is prepared while one is in use: in order, one ahead, errors in their place."""

from __future__ import annotations

import threading

import pytest
from acpc_server.encoding.anchors import prepared_ahead
from waiting import GENEROUS_SECONDS


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_results_come_in_order(count: int) -> None:
    with prepared_ahead(lambda item: -item, range(count)) as results:
        assert list(results) == [-item for item in range(count)]


def test_one_is_prepared_while_another_is_in_use_and_no_more() -> None:
    begun = [threading.Event() for _ in range(3)]

    def prepare(item: int) -> int:
        begun[item].set()
        return item

    with prepared_ahead(prepare, range(3)) as results:
        assert next(results) == 0
        assert begun[1].wait(GENEROUS_SECONDS), "the second begins before it is asked for"
        assert not begun[2].is_set(), "nothing begins the third"
        assert next(results) == 1
        assert begun[2].wait(GENEROUS_SECONDS)
        assert next(results) == 2


def test_an_error_comes_where_its_result_would_have_come() -> None:
    def prepare(item: int) -> int:
        if item == 1:
            raise ValueError(item)
        return item

    with prepared_ahead(prepare, range(3)) as results:
        assert next(results) == 0
        with pytest.raises(ValueError, match="1"):
            next(results)


def test_whoever_leaves_early_leaves_no_thread() -> None:
    made: list[threading.Thread] = []

    def prepare(item: int) -> int:
        made.append(threading.current_thread())
        return item

    def leave_early() -> None:
        with prepared_ahead(prepare, range(3)) as results:
            raise KeyError(next(results))

    with pytest.raises(KeyError) as kept:  # and with it the frame that it was raised in
        leave_early()
    assert kept.value.args == (0,)
    assert made
    assert made[0] is not threading.main_thread()
    assert not any(thread.is_alive() for thread in made)
