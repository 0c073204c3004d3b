"""A device that gives NaN is found out by its self-test; a checkpoint that does ends no server."""

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from acpc_server.engine import self_test
from acpc_server.errors import DeviceFailed
from acpc_server.scheduling import Priority, RequestContext, Work
from owned_device import OwnedDevice
from plain_model import PlainModel, frames
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

CPU, ROWS = torch.device("cpu"), 40
_aten = torch.ops.aten
PRODUCTS = (_aten.mm, _aten.matmul, _aten.addmm, _aten.linear, _aten.bmm)
Spoil = Callable[[Tensor, list[Tensor]], Tensor]


class WrongDevice(TorchDispatchMode):
    """Spoils every matrix product of its thread; ``spoil`` gets it and those before."""

    def __init__(self, spoil: Spoil) -> None:
        super().__init__()
        self._spoil, self._before = spoil, list[Tensor]()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> object:  # noqa: ANN001
        right = func(*args, **(kwargs or {}))
        if func.overloadpacket not in PRODUCTS:
            return right
        answer = self._spoil(right, self._before)
        self._before.append(right)
        return answer


class Multiplies(PlainModel):
    """Encodes a frame to its mean, by a product; a black one to NaN."""

    def encode(self, frames: Tensor) -> Tensor:
        black = (frames == 0).flatten(1).all(dim=1, keepdim=True)
        size = frames[0].numel()
        return (frames.flatten(1) @ torch.ones(size, 3) / size).masked_fill(black, torch.nan)


class FaultyDevice(OwnedDevice):
    """One that may go wrong."""

    def go_wrong(self, spoil: Spoil) -> None:
        def enter(payloads: Sequence[None], _: object) -> Sequence[None]:
            WrongDevice(spoil).__enter__()
            return payloads

        assert self_test(CPU) == {}, "the right answers are there"
        work = Work("wrong", (), None, enter, 1)
        self.engine.run(work, RequestContext(Priority.INTERACTIVE))

    def answer(
        self,
        mark: float = 1.0,
        priority: Priority = Priority.JOB,
        model: PlainModel | None = None,
    ) -> Tensor:
        return self.encode(model or Multiplies(), frames(mark, ROWS), priority)


@pytest.fixture
def faulty() -> Iterator[FaultyDevice]:
    made = FaultyDevice()
    yield made
    made.engine.close()


def one_row(value: float) -> Spoil:
    return lambda right, _: right.index_fill(0, torch.tensor([0]), value)


@pytest.mark.parametrize("priority", Priority)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda right, _: right * torch.nan,
        lambda right, _: right / 0,
        lambda right, _: right / -0.0,
        one_row(torch.nan),
    ],
    ids=["nan", "inf", "minus inf", "nan in one row"],
)
def test_answers_that_are_not_finite_fail_the_device_and_no_work(
    faulty: FaultyDevice, spoil: Spoil, priority: Priority
) -> None:
    assert faulty.answer(priority=priority).isfinite().all()
    faulty.go_wrong(spoil)
    for _ in range(ROWS):
        with pytest.raises(DeviceFailed, match="self-test"):
            faulty.answer(priority=priority)
    assert len(faulty.failures) == 1


class Raises(Multiplies):
    """A model of an unknown fault."""

    def encode(self, frames: Tensor) -> Tensor:
        raise ValueError("numbers do not add up")


def test_an_unknown_error_is_the_devices_when_its_self_test_fails(faulty: FaultyDevice) -> None:
    with pytest.raises(ValueError, match="add up"):
        faulty.answer(model=Raises())
    faulty.go_wrong(lambda right, _: right * 2)
    with pytest.raises(DeviceFailed):
        faulty.answer(model=Raises())
    assert faulty.failures == ["ValueError: numbers do not add up"]


def test_a_right_device_goes_on_beside_a_wrong_one(faulty: FaultyDevice) -> None:
    other = FaultyDevice()
    faulty.go_wrong(lambda right, _: right * torch.nan)
    for _ in range(ROWS):
        with pytest.raises(DeviceFailed):
            faulty.answer()
        assert (other.answer() == 1).all()
    assert (len(faulty.failures), other.failures) == (1, [])
    other.engine.close()


def test_a_checkpoint_that_diverges_ends_no_server(faulty: FaultyDevice) -> None:
    for _ in range(ROWS):
        assert faulty.answer(mark=0.0).isnan().all()
    assert faulty.failures == []
