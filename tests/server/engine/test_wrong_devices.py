"""A device that answers wrongly is found out, by NaN at once and otherwise by its known product.

The product has eight rows, and a device is asked for it whenever it has given none right for some
seconds. What is wrong only in later rows of larger answers, or only in other operations, and is
finite, is not found out.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient
from acpc_server.engine.answers import wrong_answer
from acpc_server.errors import DeviceFailed
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from plain_model import PlainModel, frames
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from waiting import GENEROUS_SECONDS, wait_until

CPU, ROWS = torch.device("cpu"), 40
Spoil = Callable[[Tensor, list[Tensor]], Tensor]


class WrongDevice(TorchDispatchMode):
    """Spoils every matrix product of its thread; ``spoil`` gets it and those before."""

    def __init__(self, spoil: Spoil) -> None:
        super().__init__()
        self._spoil, self._before = spoil, list[Tensor]()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> object:  # noqa: ANN001
        right = func(*args, **(kwargs or {}))
        if func.overloadpacket not in (torch.ops.aten.mm, torch.ops.aten.matmul):
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


class FaultyDevice:
    """An engine whose failures are noted, and its device, which may go wrong."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.engine = DeviceClient(CPU, Metrics(), on_failed=self.failures.append)

    def go_wrong(self, spoil: Spoil) -> None:
        def enter(payloads: Sequence[None], _: object) -> Sequence[None]:
            WrongDevice(spoil).__enter__()
            return payloads

        context = RequestContext(Priority.INTERACTIVE)
        self.engine.share("wrong", (), None, enter, context, rows=1, max_rows=1)

    def ask(self, mark: float = 1.0, priority: Priority = Priority.JOB) -> Tensor:
        context = RequestContext(priority, GENEROUS_SECONDS)
        given = frames(mark, ROWS), context, NumericMode.FP32
        return self.engine.encode(Multiplies(), *given)  # type: ignore[arg-type]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock by which devices are asked for their product; it stands still."""
    stands = SimpleNamespace(now=0.0, perf_counter=time.perf_counter)
    stands.monotonic = lambda: stands.now
    monkeypatch.setattr("acpc_server.engine.owner.time", stands)
    return stands


@pytest.fixture
def faulty(clock: SimpleNamespace) -> Iterator[FaultyDevice]:
    made = FaultyDevice()
    yield made
    made.engine.close()


def stale(right: Tensor, before: list[Tensor]) -> Tensor:
    return next((one for one in reversed(before) if one.shape == right.shape), right)


def one_row(value: float) -> Spoil:
    return lambda right, _: right.index_fill(0, torch.tensor([0]), value)


@pytest.mark.parametrize("priority", Priority)
@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda right, _: right * torch.nan, "as nan"),
        (lambda right, _: right / 0, "as inf"),
        (lambda right, _: right / -0.0, "as -inf"),
        (one_row(torch.nan), "as nan"),
    ],
    ids=["nan", "inf", "minus inf", "nan in one row"],
)
def test_answers_that_are_not_finite_fail_the_device_and_no_work(
    faulty: FaultyDevice, spoil: Spoil, named: str, priority: Priority
) -> None:
    assert faulty.ask(priority=priority).isfinite().all()
    faulty.go_wrong(spoil)
    for _ in range(ROWS):
        with pytest.raises(DeviceFailed, match=named):
            faulty.ask(priority=priority)
    assert len(faulty.failures) == 1


@pytest.mark.parametrize(
    ("spoil", "served", "products"),
    [(lambda right, _: right * 0, 0.0, 1), (stale, 1.0, 2), (one_row(7.0), 7.0 / 192, 1)],
    ids=["zeros", "stale", "one row"],
)
def test_wrong_finite_answers_are_served_until_the_known_product_is_asked_for(
    faulty: FaultyDevice, clock: SimpleNamespace, spoil: Spoil, served: float, products: int
) -> None:
    """A busy device is asked as an idle one is; the first of stale products may be right."""
    faulty.go_wrong(spoil)
    faulty.ask(mark=1.0)
    assert faulty.ask(mark=2.0)[0].tolist() == pytest.approx([served] * 3)
    with pytest.raises(DeviceFailed):
        while clock.now < 30:
            clock.now += 1
            faulty.ask()
            faulty.engine.owner.trouble(10.0)
    assert 11 * (products - 1) < clock.now <= 11 * products
    assert "product of whole numbers" in faulty.failures[0]


def test_a_right_device_goes_on_beside_a_wrong_one(faulty: FaultyDevice) -> None:
    other = FaultyDevice()
    faulty.go_wrong(lambda right, _: right * torch.nan)
    for _ in range(ROWS):
        with pytest.raises(DeviceFailed):
            faulty.ask()
        assert (other.ask() == 1).all()
    assert (len(faulty.failures), other.failures) == (1, [])
    other.engine.close()


@pytest.mark.parametrize(("seconds", "asked"), [(3600.0, 1), (0.0, ROWS)])
def test_a_checkpoint_that_diverges_buys_few_known_products(
    faulty: FaultyDevice, monkeypatch: pytest.MonkeyPatch, seconds: float, asked: int
) -> None:
    products: list[str] = []

    def counted(device: torch.device) -> str:
        products.append(wrong_answer(device))
        return products[-1]

    monkeypatch.setattr("acpc_server.engine.answers.wrong_answer", counted)
    monkeypatch.setattr("acpc_server.engine.answers.PRODUCT_SECONDS", seconds)
    for _ in range(ROWS):
        assert faulty.ask(mark=0.0).isnan().all()
    assert (products, faulty.failures) == ([""] * asked, [])


@pytest.mark.parametrize("mark", [0.0, torch.nan])
def test_only_finite_answers_end_trouble(
    faulty: FaultyDevice, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, mark: float
) -> None:
    def short(_: torch.device) -> str:
        raise MemoryError

    owner = faulty.engine.owner
    clock.now += 1000.0
    monkeypatch.setattr("acpc_server.engine.owner.wrong_answer", short)
    wait_until(lambda: owner.trouble(10.0) != "")
    faulty.ask(mark)
    assert owner.trouble(10.0) != "", "NaN is no success"
    faulty.ask()
    assert owner.trouble(10.0) == ""
