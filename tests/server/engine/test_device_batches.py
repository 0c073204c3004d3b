"""Requests that wait together share a device call, and each gets its own rows."""

from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient
from acpc_server.errors import ResourceExhausted
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from plain_model import CARD, Held, PlainModel, frames
from torch import Tensor
from waiting import GENEROUS_SECONDS

pytestmark = pytest.mark.edge

CPU = torch.device("cpu")
FP32, BF16 = NumericMode.FP32, NumericMode.BF16
INTERACTIVE = Priority.INTERACTIVE
PRIORITIES = ("interactive", "job")
Asked = list[tuple[float, Priority, NumericMode, int]]


def calls_of(asked: Asked, *, merge: bool = True) -> tuple[list[list[float]], list[Tensor]]:
    """Marks per device call, and answers, of requests that all waited behind a held one."""
    held, metrics = Held(), Metrics()
    engine, model = DeviceClient(CPU, metrics, merge=merge), PlainModel(held)
    with ThreadPoolExecutor(32) as pool:

        def ask(mark: float, priority: Priority, mode: NumericMode, rows: int) -> Future[Tensor]:
            context = RequestContext(priority)
            return pool.submit(lambda: engine.encode(model, frames(mark, rows), context, mode))

        first = ask(0.0, Priority.JOB, FP32, 1)
        assert held.entered.wait(GENEROUS_SECONDS)
        answers = []
        for index, request in enumerate(asked):
            answers.append(ask(*request))
            while sum(metrics.queue_depth.labels(p)._value.get() for p in PRIORITIES) <= index:
                assert not first.done()
        held.free.set()
        results = [answer.result(GENEROUS_SECONDS) for answer in answers]
        return held.calls[1:], results


def test_what_waits_together_is_computed_together_unless_merging_is_off() -> None:
    asked = [(float(mark), INTERACTIVE, FP32, mark) for mark in (1, 2, 3)]
    for merge, calls in ((True, [[1.0, 2.0, 3.0]]), (False, [[1.0], [2.0], [3.0]])):
        found, answers = calls_of(asked, merge=merge)
        assert found == calls
        for (mark, _, _, rows), answer in zip(asked, answers, strict=True):
            assert answer.tolist() == [[mark] * 3] * rows


def test_jobs_and_other_modes_keep_to_themselves() -> None:
    asked: Asked = [
        (1.0, INTERACTIVE, FP32, 1),
        (2.0, INTERACTIVE, BF16, 1),
        (3.0, INTERACTIVE, FP32, 1),
        (4.0, Priority.JOB, FP32, 1),
        (5.0, Priority.JOB, FP32, 1),
    ]
    calls, _ = calls_of(asked)
    assert sorted(calls) == [[1.0, 3.0], [2.0], [4.0], [5.0]]


def test_a_call_is_no_larger_than_one_request_may_be() -> None:
    calls, answers = calls_of([(float(m), INTERACTIVE, FP32, 200) for m in (1, 2, 3, 4)])
    assert calls == [[1.0, 2.0], [3.0, 4.0]], "512 frames at most"
    assert [len(answer) for answer in answers] == [200] * 4


class Numbered(PlainModel):
    """Its predictions are the numbers of their rows."""

    def unroll(self, histories: Tensor, past: Tensor, future: Tensor) -> Tensor:
        rows = torch.arange(float(len(histories)))[:, None, None, None]
        return rows.expand(len(histories), future.shape[1], future.shape[2], 3)


def test_equal_rows_of_a_rollout_share_the_first_ones_answer() -> None:
    engine, context = DeviceClient(CPU, Metrics()), RequestContext(INTERACTIVE)
    rows = torch.tensor([1.0, 2.0, 1.0])[:, None, None]
    model, blocks = Numbered(), torch.zeros(3, 2, CARD.action_block_dim)
    found = engine.rollout(model, rows.expand(3, 1, 3).clone(), blocks, context, FP32)
    assert found[:, 0, 0].tolist() == [0.0, 1.0, 0.0]
    engine.close()


def test_a_batch_too_large_for_the_memory_is_halved_until_it_fits() -> None:
    seen: list[int] = []

    def small(rows: Tensor) -> None:
        seen.append(len(rows))
        if len(rows) > 2:
            raise torch.OutOfMemoryError

    engine = DeviceClient(CPU, Metrics())
    many = torch.arange(7.0)[:, None, None, None].expand(7, 3, 8, 8)
    answer = engine.encode(PlainModel(small), many, RequestContext(INTERACTIVE), FP32)
    assert answer[:, 0].tolist() == list(range(7))
    assert max(seen) == 7

    def never(_: Tensor) -> None:
        raise torch.OutOfMemoryError

    with pytest.raises(ResourceExhausted) as refused:
        engine.encode(PlainModel(never), many, RequestContext(INTERACTIVE), FP32)
    assert refused.value.reason == "DEVICE_MEMORY"
    engine.close()
