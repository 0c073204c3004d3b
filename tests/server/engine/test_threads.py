"""Small device calls stay on one thread, large ones take all, and nobody else's count changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from acpc_server.engine.host import THREADED_WORK, by_work
from torch import Tensor

THREADS = 3
ROW = torch.zeros(1, 1)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """This thread has several, and gives them back."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


def counted(rows: Tensor) -> Tensor:
    """The thread's count, for each row."""
    return torch.full((len(rows),), torch.get_num_threads())


@pytest.mark.parametrize(("work", "expected"), [(THREADED_WORK, THREADS), (THREADED_WORK / 2, 1)])
def test_threads_follow_the_size_of_the_call(work: float, expected: int) -> None:
    assert by_work(work, counted)(ROW).tolist() == [expected]
    assert torch.get_num_threads() == THREADS


def test_rows_count() -> None:
    compute = by_work(THREADED_WORK / 2, counted)
    assert compute(torch.zeros(2, 1)).tolist() == [THREADS, THREADS]


def test_a_call_that_fails_gives_its_threads_back() -> None:
    def fail(rows: Tensor) -> Tensor:
        raise ValueError(rows)

    with pytest.raises(ValueError, match="tensor"):
        by_work(0.0, fail)(ROW)
    assert torch.get_num_threads() == THREADS


def test_a_thread_that_starts_meanwhile_keeps_the_default() -> None:
    seen: list[int] = []

    def start_another(rows: Tensor) -> Tensor:
        other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        other.start()
        other.join()
        return rows

    by_work(0.0, start_another)(ROW)
    assert seen == [THREADS], "torch's own setter would have given it one"
