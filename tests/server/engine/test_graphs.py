"""Captured graphs of pools: compared once with eager, then trusted, or never used."""

from collections.abc import Callable

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import graphs
from acpc_server.engine.accelerator import WARM_UP, Compute, DeviceGraphs, capture
from acpc_server.engine.graphs import AFTER, PoolGraphs
from acpc_server.observe import Metrics
from torch import Tensor

CPU, FP32 = torch.device("cpu"), NumericMode.FP32
Lie = Callable[[Tensor], Tensor]


def doubled(rows: Tensor) -> Tensor:
    return 2 * rows


class Graphed:
    """Graphs on a device that captures by running the computation again, and may lie."""

    def __init__(self, lie: Lie = lambda answer: answer) -> None:
        self.metrics, self.lie = Metrics(), lie
        self.captured = self.replayed = 0
        self.graphs = PoolGraphs(CPU, self.metrics, self._capture)

    def _capture(self, compute: Compute, inputs: tuple[Tensor, ...]) -> Compute:
        self.captured += 1

        def replay(*tensors: Tensor) -> Tensor:
            self.replayed += 1
            assert all(x.is_contiguous() for x in tensors)
            return self.lie(compute(*tensors))

        return replay

    def ask(self, count: int = 3, mode: NumericMode = FP32) -> bool:
        rows = torch.randn(5, count).T  # of another layout
        return torch.equal(self.graphs.compute(doubled, "digest", mode, rows), 2 * rows)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


def test_a_shape_that_comes_often_is_served_by_its_graph() -> None:
    device = Graphed()
    assert all(device.ask() for _ in range(AFTER + 1))
    assert (device.captured, device.replayed) == (1, 1), "compared with other inputs than captured"
    assert device.value("acpc_graphs") == 1
    assert all(device.ask() for _ in range(5))
    assert device.replayed == 6 and device.graphs.replayed, "which receipts name"


def broken(_: Tensor) -> Tensor:
    raise RuntimeError("a kernel that cannot")


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (lambda x: x * (1 + 1e-3), "differs"),
        (lambda x: x * torch.nan, "differs"),
        (broken, "raised"),
    ],
)
def test_a_graph_that_differs_or_raises_never_serves(lie: Lie, reason: str) -> None:
    device = Graphed(lie)
    assert all(device.ask() for _ in range(3 * AFTER))
    assert (device.captured, device.replayed) == (1, 1)
    assert device.value("acpc_graphs_rejected_total", reason=reason) == 1
    assert device.value("acpc_graphs") == 0


def test_bfloat16_may_differ_by_its_rounding_and_float64_has_no_graphs() -> None:
    device = Graphed(lambda x: x * (1 + 1e-3))
    for _ in range(AFTER + 1):
        device.ask(mode=NumericMode.BF16)
        assert device.ask(mode=NumericMode.FP64)
    assert (device.captured, device.value("acpc_graphs")) == (1, 1)


def test_the_graphs_used_the_longest_ago_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_GRAPHS", 2)
    monkeypatch.setattr(graphs, "MAX_SHAPES", 4)
    device = Graphed()
    for count in range(1, 8):
        assert all(device.ask(count) for _ in range(AFTER + 1))
        assert device.value("acpc_graphs") == min(count, 2)


def test_a_device_without_graphs_answers_eagerly() -> None:
    assert not PoolGraphs(CPU, Metrics()).wanted


class Recording(DeviceGraphs):
    """Replays as graphs do, into the memory of the capture."""

    def __init__(self) -> None:
        self.aside_calls, self.recorded = 0, 0

    def aside(self, work: Callable[[], object]) -> None:
        self.aside_calls += 1
        assert not self.recorded, "warmed up before the capture"
        work()

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self.recorded += 1
        out = work()
        return lambda: out.copy_(work()), out


def test_answers_belong_to_their_own_inputs_and_to_nobody_else() -> None:
    device, cached = Recording(), list[bool]()

    def compute(a: Tensor, b: Tensor) -> Tensor:
        cached.append(torch.is_autocast_cache_enabled())
        return a @ b

    inputs = [(torch.randn(3, 4), torch.randn(4, 2)) for _ in range(3)]
    fast = capture(compute, inputs[0], device)
    assert (device.aside_calls, device.recorded) == (1, 1)
    assert cached == [False] * (WARM_UP + 1), "a cached cast would not be in the graph"
    assert torch.is_autocast_cache_enabled()
    answers = [fast(*pair) for pair in inputs]
    for answer, (a, b) in zip(answers, inputs, strict=True):
        torch.testing.assert_close(answer, a @ b)
    inputs[0][0].zero_()
    torch.testing.assert_close(fast(*inputs[1]), answers[1])


def test_a_capture_that_fails_leaves_the_cache_of_autocast_on() -> None:
    with pytest.raises(RuntimeError, match="cannot"):
        capture(broken, (torch.zeros(1),), Recording())
    assert torch.is_autocast_cache_enabled()
