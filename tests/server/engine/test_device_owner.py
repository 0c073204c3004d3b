"""Whose fault a failed device call is, and that nobody waits for a device that has failed."""

import asyncio
import errno
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient
from acpc_server.errors import (
    DeadlineExceeded,
    DeviceFailed,
    InvalidArgument,
    ResourceExhausted,
    shortage,
)
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext, Work
from plain_model import CARD, Held, PlainModel, frames
from torch import Tensor
from waiting import GENEROUS_SECONDS, wait_until

CPU = torch.device("cpu")
FP32 = NumericMode.FP32
NO_MEMORY = "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"


class OwnedDevice:
    """An engine whose failures are noted, and callers without a deadline."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.metrics = Metrics()
        self.engine = DeviceClient(CPU, self.metrics, on_failed=self.failures.append)

    def ask(self, before: Callable[[Tensor], object] = lambda _: None, count: int = 1) -> Tensor:
        model = PlainModel(before)  # type: ignore[arg-type]
        context = RequestContext(Priority.INTERACTIVE)
        return self.engine.encode(model, frames(1.0, count), context, FP32)


@pytest.fixture
def owned() -> Iterator[OwnedDevice]:
    others = set(threading.enumerate())
    made = OwnedDevice()
    yield made
    made.engine.close()
    wait_until(lambda: "device" not in {x.name for x in {*threading.enumerate()} - others})


def raising(error: BaseException) -> Callable[[Tensor], None]:
    def raise_it(_: Tensor) -> None:
        raise error

    return raise_it


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug"),
        RuntimeError("shapes differ"),
        TimeoutError("of the model, not of the request"),
        InvalidArgument("frames", "no"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
    ],
)
def test_a_bug_of_a_model_is_its_callers_alone(owned: OwnedDevice, error: BaseException) -> None:
    ordinary = isinstance(error, Exception)
    kind, words = (type(error), str(error)) if ordinary else (RuntimeError, type(error).__name__)
    for _ in range(3):
        with pytest.raises(kind, match=words):
            owned.ask(raising(error))
    assert owned.failures == []
    assert owned.ask().shape == (1, 3)


class Spoiled(PlainModel):
    """Encodes to NaN at first, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.calls = 0
        self._times = times

    def encode(self, frames: Tensor) -> Tensor:
        self.calls += 1
        encoded = super().encode(frames)
        return encoded * torch.nan if self.calls <= self._times else encoded


def encode(owned: OwnedDevice, model: PlainModel, given: Tensor) -> Tensor:
    return owned.engine.encode(model, given, RequestContext(Priority.INTERACTIVE), FP32)


def not_finite(owned: OwnedDevice, outcome: str) -> float | None:
    labels = {"primitive": "encode", "outcome": outcome}
    return owned.metrics.registry.get_sample_value("acpc_not_finite_total", labels)


def test_nan_that_repeats_is_the_checkpoints(owned: OwnedDevice) -> None:
    assert encode(owned, Spoiled(2), frames(1.0)).isnan().all()
    assert (not_finite(owned, "repeated"), owned.failures) == (1, [])


def test_nan_that_does_not_repeat_is_computed_once_more_and_serves(owned: OwnedDevice) -> None:
    assert encode(owned, Spoiled(1), frames(1.0)).isfinite().all()
    assert (not_finite(owned, "changed"), owned.failures) == (1, [])


class SpoiledOnce(Spoiled):
    """Encodes black frames to NaN each time, and others at first."""

    def encode(self, frames: Tensor) -> Tensor:
        black = (frames == 0).flatten(1).all(dim=1, keepdim=True)
        return super().encode(frames).masked_fill(black, torch.nan)


def test_rows_beside_one_that_diverges_are_looked_at_as_well(owned: OwnedDevice) -> None:
    """NaN of a row that another's hides is no more the checkpoint's than NaN alone."""
    model = SpoiledOnce(1)
    together = torch.cat([frames(0.0), frames(1.0)])
    assert encode(owned, model, together).isnan().any(dim=1).tolist() == [True, False]
    assert not_finite(owned, "repeated") == 1


def test_frames_that_are_not_finite_are_computed_once(owned: OwnedDevice) -> None:
    model = Spoiled(1)
    assert encode(owned, model, frames(torch.nan)).isnan().all()
    assert model.calls == 1


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    ],
)
def test_after_an_error_of_the_device_every_caller_is_told(
    owned: OwnedDevice, error: Exception
) -> None:
    with pytest.raises(DeviceFailed) as told:
        owned.ask(raising(error))
    assert (told.value.code, told.value.reason) == ("UNAVAILABLE", "DEVICE_FAILED")
    assert len(owned.failures) == 1
    assert type(error).__name__ in owned.failures[0]
    with pytest.raises(DeviceFailed):
        owned.ask()
    assert len(owned.failures) == 1


def test_those_who_wait_are_told_when_a_call_hangs(owned: OwnedDevice) -> None:
    held = Held()
    with ThreadPoolExecutor(4) as pool:
        hung = pool.submit(owned.ask, held)
        assert held.entered.wait(GENEROUS_SECONDS)
        first = owned.engine.owner.call
        assert "encode" in first
        waiting = [pool.submit(owned.ask) for _ in range(2)]
        depth = owned.metrics.queue_depth.labels("interactive")._value
        wait_until(lambda: depth.get() == 2)
        owned.engine.owner.fail("a call takes too long")
        for answer in (hung, *waiting):
            with pytest.raises(DeviceFailed, match="too long"):
                answer.result(GENEROUS_SECONDS)
        held.free.set()  # late: its caller has gone, which harms nobody
    assert owned.failures == ["a call takes too long"]


def test_a_series_that_fails_leaves_nobody_waiting(
    owned: OwnedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned.metrics, "compute", None)
    with pytest.raises(DeviceFailed):
        owned.ask()
    assert len(owned.failures) == 1


class Unlike:
    """A kind of work that cannot be compared with another's."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _: object) -> bool:
        sys.exit()


def test_work_taken_and_lost_is_answered(owned: OwnedDevice) -> None:
    def ask() -> None:
        work: Work[int] = Work("pair", (Unlike(),), 1, lambda given, _: given, 1, merges=True)
        owned.engine.run(work, RequestContext(Priority.INTERACTIVE))

    held = Held()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(owned.ask, held)
        assert held.entered.wait(GENEROUS_SECONDS)
        lost = [pool.submit(ask) for _ in range(2)]
        depth = owned.metrics.queue_depth.labels("interactive")._value
        wait_until(lambda: depth.get() == 2)
        held.free.set()
        for answer in lost:
            with pytest.raises(DeviceFailed):
                answer.result(GENEROUS_SECONDS)
        assert first.result(GENEROUS_SECONDS).shape == (1, 3)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError(NO_MEMORY), "HOST_SHORTAGE"),
        (MemoryError(), "HOST_SHORTAGE"),
        (torch.OutOfMemoryError(), "DEVICE_MEMORY"),
    ],
)
def test_a_batch_too_large_for_the_memory_is_halved_until_it_fits(
    owned: OwnedDevice, error: Exception, reason: str
) -> None:
    seen: list[int] = []

    def small(rows: Tensor) -> None:
        seen.append(len(rows))
        if len(rows) > 2:
            raise error

    many = torch.arange(7.0)[:, None, None, None].expand(7, 3, 8, 8)
    assert encode(owned, PlainModel(small), many)[:, 0].tolist() == list(range(7))
    assert max(seen) == 7
    with pytest.raises(ResourceExhausted) as short:
        owned.ask(raising(error), count=2)
    assert (short.value.code, short.value.reason) == ("RESOURCE_EXHAUSTED", reason)
    assert short.value.retry_after
    assert owned.failures == []


class Numbered(PlainModel):
    """Its predictions are the numbers of their rows."""

    def unroll(self, histories: Tensor, past: Tensor, future: Tensor) -> Tensor:
        rows = torch.arange(float(len(histories)))[:, None, None, None]
        return rows.expand(len(histories), future.shape[1], future.shape[2], 3)


def test_equal_rows_of_a_rollout_share_the_first_ones_answer(owned: OwnedDevice) -> None:
    rows = torch.tensor([1.0, 2.0, 1.0])[:, None, None].expand(3, 1, 3)
    given = rows.clone(), torch.zeros(3, 2, CARD.action_block_dim)
    context = RequestContext(Priority.INTERACTIVE)
    found = owned.engine.rollout(Numbered(), *given, context, FP32)
    assert found[:, 0, 0].tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (MemoryError(), True),
        (OSError(errno.EMFILE, "Too many open files"), True),
        (OSError(errno.ENOENT, "No such file"), False),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("could not create a primitive"), True),
        (RuntimeError("std::bad_alloc"), True),
        (ValueError("not enough memory"), False),
        (RuntimeError("shapes differ"), False),
    ],
)
def test_what_is_a_shortage_of_the_host(error: Exception, short: bool) -> None:
    assert (shortage(error) is not None) == short


def test_an_answer_that_comes_as_the_deadline_passes_is_late_and_no_fault(
    owned: OwnedDevice,
) -> None:
    """The loop hears of both at once: it was busy when the one came and the other passed."""
    work: Work[int] = Work("pair", (), 1, lambda payloads, _: payloads, 1)

    async def busy() -> object:
        context = RequestContext(Priority.INTERACTIVE, 0.05)
        asked = asyncio.create_task(owned.engine.ask(work, context))
        await asyncio.sleep(0)  # it is in line
        assert owned.engine.run(work, RequestContext(Priority.INTERACTIVE)) == 1  # and answered
        wait_until(lambda: (context.remaining() or 0.0) < 0)
        return await asked

    with pytest.raises(DeadlineExceeded):
        asyncio.run(busy())
