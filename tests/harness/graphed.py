"""Graphs without a GPU: what is captured runs again."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from acpc.contract import NumericMode
from acpc_server.engine.accelerator import Compute
from acpc_server.engine.graphs import Graphs
from acpc_server.models import captured_form
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
        self.graphs = Graphs(CPU, self.metrics, self._capture)

    def _capture(self, compute: Compute, inputs: tuple[Tensor, ...], exact: bool) -> Compute:
        self.captured += 1

        def replay(*tensors: Tensor) -> Tensor:
            self.replayed += 1
            assert all(x.is_contiguous() for x in tensors)
            with nullcontext() if exact else captured_form():
                return self.lie(compute(*tensors))

        return replay

    def ask(self, count: int = 3, mode: NumericMode = FP32, exact: bool = False) -> bool:
        rows = torch.randn(5, count).T  # of another layout
        found = self.graphs.compute(doubled, "digest", mode, rows, exact=exact)
        return torch.equal(found, 2 * rows)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)
