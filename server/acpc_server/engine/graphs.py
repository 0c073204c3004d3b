"""Rolls out pools whose shape comes often by a graph that the device has captured.

A planner sends the same shape thousands of times, and a captured rollout is one launch instead of
hundreds. A graph is compared once with the eager answer to other inputs than it was captured with,
and then trusted; one that differs is never used, nor captured again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import structlog
import torch
from acpc.contract import NumericMode
from torch import Tensor

from acpc_server.engine.accelerator import Compute, capture, has_graphs, to_host
from acpc_server.engine.answers import accelerator_failed
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.engine")
# Calls of a shape before it is captured.
AFTER = 8
# A graph holds memory of the device, and the weights that it reads.
MAX_GRAPHS = 8
# Shapes whose calls are counted.
MAX_SHAPES = 64
# Largest difference from eager, of its largest number; in bfloat16 either is off by about 1e-2.
TOLERANCES = {NumericMode.BF16: 5e-2}
TOLERANCE = 1e-5


@dataclass
class _Shape:
    calls: int = 0
    graph: Compute | None = None
    trusted: bool = False


class PoolGraphs:
    """Graphs by shape; for the device's thread only.

    ``make`` captures a computation for inputs; it is None where the device has no graphs.
    """

    def __init__(
        self,
        device: torch.device,
        metrics: Metrics,
        make: Callable[[Compute, tuple[Tensor, ...]], Compute] | None = None,
    ) -> None:
        self._make = make or (capture if has_graphs(device) else None)
        self._metrics = metrics
        self._shapes: OrderedDict[Hashable, _Shape] = OrderedDict()
        self.replayed = False  # whether a graph gave the last answer

    @property
    def wanted(self) -> bool:
        """Return whether the device has graphs."""
        return self._make is not None

    def compute(self, eager: Compute, digest: str, mode: NumericMode, *inputs: Tensor) -> Tensor:
        """Return ``eager(*inputs)`` on the CPU, for a model of ``digest``; raises what that raises.

        Pools in float64, which seldom come often, are computed eagerly.
        """
        if self._make is None or mode is NumericMode.FP64:
            return to_host(eager(*inputs))
        self.replayed = False
        key = (digest, mode, *((tuple(x.shape), x.dtype) for x in inputs))
        shape = self._shapes.setdefault(key, _Shape())
        self._shapes.move_to_end(key)
        inputs = tuple(x.contiguous() for x in inputs)  # a graph is made for one layout
        if shape.graph is not None and shape.trusted:
            self.replayed = True
            return to_host(shape.graph(*inputs))
        answer = to_host(eager(*inputs))
        shape.calls += 1
        if shape.graph is not None:
            shape.trusted = self._agrees(shape.graph, inputs, answer, mode)
            if not shape.trusted:
                shape.graph = None
        elif shape.calls == AFTER:
            shape.graph = self._captured(self._make, eager, inputs)
        self._forget()
        self._metrics.graphs.set(sum(one.trusted for one in self._shapes.values()))
        return answer

    def _captured(
        self,
        make: Callable[[Compute, tuple[Tensor, ...]], Compute],
        eager: Compute,
        inputs: tuple[Tensor, ...],
    ) -> Compute | None:
        try:
            return make(eager, tuple(x.detach().clone() for x in inputs))
        except RuntimeError as error:
            if accelerator_failed(error):
                raise
            self._reject("raised", str(error))
            return None

    def _agrees(
        self, graph: Compute, inputs: tuple[Tensor, ...], wanted: Tensor, mode: NumericMode
    ) -> bool:
        try:
            found = to_host(graph(*inputs))
        except RuntimeError as error:
            if accelerator_failed(error):
                raise
            self._reject("raised", str(error))
            return False
        difference = float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-30))
        agrees = difference <= TOLERANCES.get(mode, TOLERANCE)  # NaN does not
        if agrees:
            log.info("graph_captured", difference=difference)
        else:
            self._reject("differs", difference)
        return agrees

    def _reject(self, reason: str, found: float | str) -> None:
        self._metrics.graphs_rejected.labels(reason).inc()
        log.warning("graph_rejected", reason=reason, found=found)

    def _forget(self) -> None:
        """Drop what was used the longest ago, of too many shapes or graphs."""
        held = [key for key, shape in self._shapes.items() if shape.graph is not None]
        for key in held[: max(0, len(held) - MAX_GRAPHS)]:
            del self._shapes[key]
        while len(self._shapes) > MAX_SHAPES:
            self._shapes.popitem(last=False)
