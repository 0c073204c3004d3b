"""Whose fault a failed device call is, and that nobody waits for a device that has failed."""

import asyncio
import errno
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import self_test
from acpc_server.errors import (
    DeadlineExceeded,
    DeviceFailed,
    InvalidArgument,
    ResourceExhausted,
    shortage,
)
from acpc_server.scheduling import CallKind, Priority, RequestContext, Work
from owned_device import OwnedDevice
from plain_model import CARD, Held, PlainModel, frames
from shared_call import in_line
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from waiting import GENEROUS_SECONDS, wait_until

INTERACTIVE, FP32 = Priority.INTERACTIVE, NumericMode.FP32
NO_MEMORY = "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"


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
    """Encodes its first calls to NaN, so many, and black frames in every call where it says so."""

    def __init__(self, times: int, black: bool = False) -> None:
        super().__init__()
        self.calls, self._times, self._black = 0, times, black

    def encode(self, frames: Tensor) -> Tensor:
        self.calls += 1
        encoded = super().encode(frames)
        nan = (frames == 0).flatten(1).all(dim=1, keepdim=True) & self._black
        return encoded.masked_fill(nan | (self.calls <= self._times), torch.nan)


BLACK_AND_WHITE = torch.cat([frames(0.0), frames(1.0)])


@pytest.mark.parametrize(
    ("times", "black", "given", "nan", "calls", "outcome"),
    [
        (2, False, frames(1.0), [True], 2, "repeated"),  # it is the checkpoint's
        (1, False, frames(1.0), [False], 2, "changed"),  # the second one serves
        # A row that another's NaN hides is looked at as well.
        (1, True, BLACK_AND_WHITE, [True, False], 2, "repeated"),
        (1, False, frames(torch.nan), [True], 1, None),  # what comes in is not finite
    ],
    ids=["repeated", "once", "hidden", "given"],
)
def test_an_answer_that_is_not_finite_is_computed_once_more(
    *, owned: OwnedDevice, times: int, black: bool, given: Tensor, nan: list[bool], calls: int,
    outcome: str | None,
) -> None:  # fmt: skip
    model = Spoiled(times, black)
    assert owned.encode(model, given).isnan().any(dim=1).tolist() == nan
    assert (model.calls, owned.failures) == (calls, [])
    value = owned.metrics.registry.get_sample_value
    for each in ("repeated", "changed"):
        labels = {"primitive": "encode", "outcome": each}
        assert (value("acpc_not_finite_total", labels) or 0) == (each == outcome)


_aten = torch.ops.aten
PRODUCTS = (_aten.mm, _aten.matmul, _aten.addmm, _aten.linear, _aten.bmm)
Spoil = Callable[[Tensor], Tensor]


class WrongDevice(TorchDispatchMode):
    def __init__(self, spoil: Spoil) -> None:
        super().__init__()
        self._spoil = spoil

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> object:  # noqa: ANN001
        right = func(*args, **(kwargs or {}))
        return self._spoil(right) if func.overloadpacket in PRODUCTS else right


class Multiplies(PlainModel):
    def encode(self, frames: Tensor) -> Tensor:
        self._before(frames)
        return frames.flatten(1) @ torch.ones(frames[0].numel(), 3) / frames[0].numel()


def go_wrong(owned: OwnedDevice, spoil: Spoil) -> None:
    def enter(payloads: Sequence[None], _: object) -> Sequence[None]:
        WrongDevice(spoil).__enter__()
        return payloads

    assert self_test(torch.device("cpu")) == {}, "the right answers are there"
    owned.engine.run(Work(CallKind("wrong"), None, enter, 1), RequestContext(INTERACTIVE))


@pytest.mark.parametrize("priority", Priority)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda right: right * torch.nan,
        lambda right: right / -0.0,
        lambda right: right.index_fill(0, torch.tensor([0]), torch.nan),
    ],
    ids=["nan", "minus inf", "nan in one row"],
)
def test_a_device_that_fails_its_self_test_answers_nobody(
    owned: OwnedDevice, spoil: Spoil, priority: Priority
) -> None:
    asked = Multiplies(), frames(1.0, 40), priority
    assert (owned.encode(*asked) == 1).all()
    go_wrong(owned, spoil)
    for _ in range(2):
        with pytest.raises(DeviceFailed, match="self-test"):
            owned.encode(*asked)
    assert len(owned.failures) == 1


def test_an_unknown_error_is_the_devices_when_its_self_test_fails(owned: OwnedDevice) -> None:
    model = Multiplies(raising(ValueError("numbers do not add up")))
    with pytest.raises(ValueError, match="add up"):
        owned.encode(model, frames(1.0))
    go_wrong(owned, lambda right: right * 2)
    with pytest.raises(DeviceFailed):
        owned.encode(model, frames(1.0))
    assert owned.failures == ["ValueError: numbers do not add up"]


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


class Unlike:
    """A kind of work that cannot be compared with another's."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _: object) -> bool:
        sys.exit()


@pytest.mark.parametrize("fault", ["a hanging call", "the thread's own"])
def test_whoever_waits_is_told_that_the_device_has_failed(owned: OwnedDevice, fault: str) -> None:
    """A call that hangs, or work that the device's thread has taken and cannot look at."""
    held, hangs = Held(), fault == "a hanging call"

    def ask() -> None:
        kind: Any = CallKind("pair", Unlike(), merges=True)
        work: Work[int] = Work(kind, 1, lambda given, _: given, 1)
        owned.engine.run(work, RequestContext(INTERACTIVE))

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(owned.ask, held)
        assert held.entered.wait(GENEROUS_SECONDS)
        assert "encode" in owned.engine.owner.call
        waiting = [pool.submit(owned.ask if hangs else ask) for _ in range(2)]
        wait_until(lambda: in_line(owned.engine) == 2)
        if hangs:
            owned.engine.owner.fail("a call takes too long")
            waiting.append(first)
        else:
            held.free.set()
        for answer in waiting:
            with pytest.raises(DeviceFailed, match="too long" if hangs else None):
                answer.result(GENEROUS_SECONDS)
        held.free.set()  # late: its caller has gone, which harms nobody
        assert hangs or first.result(GENEROUS_SECONDS).shape == (1, 3)
    assert len(owned.failures) == 1


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
    assert owned.encode(PlainModel(small), many)[:, 0].tolist() == list(range(7))
    assert max(seen) == 7
    with pytest.raises(ResourceExhausted) as short:
        owned.ask(raising(error), count=2)
    assert (short.value.code, short.value.reason) == ("RESOURCE_EXHAUSTED", reason)
    assert short.value.retry_after
    assert owned.failures == []


class Numbered(PlainModel):
    def unroll(self, histories: Tensor, past: Tensor, future: Tensor) -> Tensor:
        rows = torch.arange(float(len(histories)))[:, None, None, None]
        return rows.expand(len(histories), future.shape[1], future.shape[2], 3)


def test_equal_rows_of_a_rollout_share_the_first_ones_answer(owned: OwnedDevice) -> None:
    rows = torch.tensor([1.0, 2.0, 1.0])[:, None, None].expand(3, 1, 3)
    given = rows.clone(), torch.zeros(3, 2, CARD.action_block_dim)
    found = owned.engine.rollout(Numbered(), *given, RequestContext(INTERACTIVE), FP32)
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
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("shapes differ"), False),
    ],
)
def test_what_is_a_shortage_of_the_host(error: Exception, short: bool) -> None:
    assert (shortage(error) is not None) == short


def test_an_answer_that_comes_as_the_deadline_passes_is_late_and_no_fault(
    owned: OwnedDevice,
) -> None:
    """The loop hears of both at once: it was busy when the one came and the other passed."""
    work: Work[int] = Work(CallKind("pair"), 1, lambda payloads, _: payloads, 1)

    async def busy() -> object:
        context = RequestContext(INTERACTIVE, 0.05)
        asked = asyncio.create_task(owned.engine.ask(work, context))
        await asyncio.sleep(0)  # it is in line
        assert owned.engine.run(work, RequestContext(INTERACTIVE)) == 1  # and answered
        wait_until(lambda: (context.remaining() or 0.0) < 0)
        return await asked

    with pytest.raises(DeadlineExceeded):
        asyncio.run(busy())
