"""Captures a computation as a graph of the device: one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

Compute = Callable[..., Tensor]
"""Tensors of fixed shapes to one tensor."""
WARM_UP = 3
_CLASSES = {"cuda": "CUDAGraph", "xpu": "XPUGraph"}


@runtime_checkable
class GraphDevice(Protocol):
    """All that capturing asks of a device."""

    def aside(self, work: Callable[[], object]) -> None:
        """Do ``work`` on a stream of its own, after what was begun and before what follows."""
        ...

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """What replays ``work`` on the memory that it used, and the tensor it answers in.

        Raises:
            RuntimeError: ``work`` cannot be captured, or the device has no graphs.
        """
        ...


class DeviceGraphs:
    """Graphs and streams of CUDA, and of XPU where torch has them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module: Any = torch.get_device_module(device)

    def aside(self, work: Callable[[], object]) -> None:
        """As :meth:`GraphDevice.aside`."""
        current = torch.accelerator.current_stream(self._device)
        side = self._module.Stream(device=self._device)
        side.wait_stream(current)
        with self._module.stream(side):
            work()
        current.wait_stream(side)

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """As :meth:`GraphDevice.record`."""
        make = getattr(self._module, _CLASSES.get(self._device.type, ""), None)
        if make is None:
            raise RuntimeError(f"torch {torch.__version__} has no graphs of {self._device.type}")
        graph = make()
        with self._module.graph(graph):
            out = work()
        return graph.replay, out


def capture(
    compute: Compute, inputs: tuple[Tensor, ...], device: GraphDevice | None = None
) -> Compute:
    """``compute`` for inputs of these very shapes, replayed; each answer is a copy of its own.

    Raises:
        RuntimeError: The computation cannot be captured.
    """
    device = device or DeviceGraphs(inputs[0].device)
    held = [x.clone() for x in inputs]

    def warm_up() -> None:
        for _ in range(WARM_UP):
            compute(*held)

    # A cast that autocast cached before the capture would not be part of the graph.
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        device.aside(warm_up)
        replay, out = device.record(lambda: compute(*held))
    finally:
        torch.set_autocast_cache_enabled(True)

    def replayed(*tensors: Tensor) -> Tensor:
        for buffer, tensor in zip(held, tensors, strict=True):
            buffer.copy_(tensor)
        replay()
        return out.clone()

    # The graph reads the weights where they lie, so they must stay when the checkpoint is unloaded.
    replayed.compute = compute  # type: ignore[attr-defined]
    return replayed
