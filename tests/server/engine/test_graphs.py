"""Captured computations: in which order a device is asked, and that answers are never shared."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from acpc_server.engine.accelerator import WARM_UP, DeviceGraphs, capture
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Recording(DeviceGraphs):
    """A device that keeps a log, and replays as graphs do: into the memory of the capture."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def aside(self, work: Callable[[], object]) -> None:
        self._log.append("aside")
        work()
        self._log.append("joined")

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self._log.append("record")
        out = work()
        self._log.append("recorded")

        def replay() -> None:
            self._log.append("replay")
            with torch.utils._python_dispatch._disable_current_modes():
                out.copy_(work())

        return replay, out


class Logged(TorchDispatchMode):
    """Logs copies and clones among what the device is asked."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self._log = log

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self,
        func,  # noqa: ANN001
        types,  # noqa: ANN001
        args=(),  # noqa: ANN001
        kwargs=None,  # noqa: ANN001
    ) -> object:
        name = str(func.overloadpacket).removeprefix("aten.")
        if name in ("copy_", "clone"):
            self._log.append(name)
        return func(*args, **(kwargs or {}))


def test_the_device_is_asked_in_this_order() -> None:
    log: list[str] = []
    cached: list[bool] = []

    def compute(a: Tensor, b: Tensor) -> Tensor:
        log.append("compute")
        cached.append(torch.is_autocast_cache_enabled())
        return a @ b

    a, b = torch.randn(3, 4), torch.randn(4, 2)
    with Logged(log):
        fast = capture(compute, (a, b), Recording(log))
        made = ["clone", "clone", "aside", *["compute"] * WARM_UP, "joined"]
        assert log == [*made, "record", "compute", "recorded"]
        log.clear()
        fast(a, b)
    assert log == ["copy_", "copy_", "replay", "compute", "clone"]
    assert cached[:-1] == [False] * (WARM_UP + 1), "a cached cast would not be in the graph"
    assert torch.is_autocast_cache_enabled()


def test_answers_belong_to_their_own_inputs_and_to_nobody_else() -> None:
    inputs = [(torch.randn(3, 4), torch.randn(4, 2)) for _ in range(3)]
    fast = capture(lambda a, b: a @ b, inputs[0], Recording([]))
    answers = [fast(*pair) for pair in inputs]
    for answer, (a, b) in zip(answers, inputs, strict=True):
        torch.testing.assert_close(answer, a @ b)
    inputs[0][0].zero_()
    torch.testing.assert_close(fast(*inputs[1]), answers[1])


def test_a_capture_that_fails_leaves_the_cache_of_autocast_on() -> None:
    def fail(*_: Tensor) -> Tensor:
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="capturing"):
        capture(fail, (torch.zeros(1),), Recording([]))
    assert torch.is_autocast_cache_enabled()


def test_a_device_without_graphs_says_so() -> None:
    with pytest.raises(RuntimeError, match="has no graphs of cpu"):
        DeviceGraphs(torch.device("cpu")).record(lambda: torch.zeros(1))
