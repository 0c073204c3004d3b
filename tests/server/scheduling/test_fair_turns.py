"""Callers take turns on the device, however many one of them has in line."""

import pytest
from acpc_server.scheduling import Turns


def line(*given: str) -> Turns[str]:
    turns = Turns[str]()
    for item in given:
        turns.add(item[0], item)
    return turns


def taken(turns: Turns[str]) -> list[str]:
    return [turns.take() for _ in range(len(turns))]


def test_one_turn_a_round_and_in_order_within_a_caller() -> None:
    turns = line("a1", "a2", "a3", "b1", "c1", "b2")
    expected = ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert list(turns) == expected
    assert taken(turns) == expected


def test_a_newcomer_comes_before_whoever_had_a_turn_just_now() -> None:
    turns = line("a1", "a2", "a3")
    assert turns.take() == "a1"
    turns.add("b", "b1")
    assert taken(turns) == ["b1", "a2", "a3"]


def test_newcomers_without_end_leave_nobody_behind() -> None:
    turns, order = line("a1", "a2", "a3"), list[str]()
    for name in "bcdefg":
        order.append(turns.take())
        turns.add(name, name)
    assert order == ["a1", "b", "a2", "c", "d", "a3"]


def test_items_leave_the_line_out_of_turn() -> None:
    turns = line("a1", "a2", "b1")
    turns.remove("a", "a1")
    with pytest.raises(ValueError, match="not in"):
        turns.remove("a", "a1")
    assert turns.take("b") == "b1"
    assert turns.next_caller(lambda caller: caller != "a") is None
    assert taken(turns) == ["a2"]
