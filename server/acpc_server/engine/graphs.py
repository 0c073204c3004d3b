"""Computes by graphs that the device has captured, where a shape comes often.

A planner sends the same shapes thousands of times, a job one for every shard, and what is captured
is one launch instead of hundreds. A graph is compared once with the eager answer to other inputs
than it was captured with, and then trusted; one that differs is never used, nor captured again. A
job's must be equal to the bit, so that its bytes do not depend on what was captured before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import structlog
import torch
from acpc.contract import NumericMode
from torch import Tensor

from acpc_server.engine.accelerator import (
    Compute,
    accelerator_failed,
    capture,
    to_host,
)
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.engine")
# Calls of a shape before it is captured. Of a job's more: a capture takes a few tenths of a second,
# in which nothing else is computed, and saves it some 10 ms a call.
AFTER, AFTER_OF_JOB = 8, 32
# A graph holds memory of the device, and the weights that it reads.
MAX_GRAPHS = 16
# Shapes whose calls are counted.
MAX_SHAPES = 64
# Largest difference from eager, of its largest number. In bfloat16 either is off by about 1e-2, in
# TF32, in which a product in parts is rounded otherwise, by about 1e-3.
TOLERANCES = {NumericMode.TF32: 1e-2, NumericMode.BF16: 5e-2}
TOLERANCE = 1e-5


@dataclass
class _Shape:
    calls: int = 0
    graph: Compute | None = None
    trusted: bool = False


class Graphs:
    """Graphs by shape; for the device's thread only.

    ``make`` captures a computation for inputs; it is None where the device has no graphs.

    Attributes:
        replayed: Whether a graph gave the last answer.
        crowd: Whether another thread found no memory, of which they hold some; it may say so.
    """

    def __init__(
        self,
        device: torch.device,
        metrics: Metrics,
        make: Callable[[Compute, tuple[Tensor, ...], bool], Compute] | None = None,
    ) -> None:
        self._make = make or (None if device.type == "cpu" else capture)
        self._metrics = metrics
        self._shapes: OrderedDict[Hashable, _Shape] = OrderedDict()
        self.wanted = self._make is not None
        self.replayed = self.crowd = False

    def compute(
        self,
        eager: Compute,
        what: Hashable,
        mode: NumericMode,
        *inputs: Tensor,
        exact: bool = False,
        chosen: int = 0,
    ) -> Tensor:
        """Return ``eager(*inputs)`` on the CPU; ``what`` names it and its model. Raises as it does.

        With ``exact`` to the bit. Float64, which seldom comes often, is computed eagerly. The last
        ``chosen`` numbers follow from a choice, which a tie may turn: they are not compared.
        """
        self.replayed = False
        if self.crowd:
            self.drop()
        if self._make is None or mode is NumericMode.FP64:
            return to_host(eager(*inputs))
        key = (what, mode, exact, *((tuple(x.shape), x.dtype) for x in inputs))
        shape = self._shapes.setdefault(key, _Shape())
        self._shapes.move_to_end(key)
        inputs = tuple(x.contiguous() for x in inputs)  # a graph is made for one layout
        if shape.graph is not None and shape.trusted:
            self.replayed = True
            return to_host(shape.graph(*inputs))
        answer = to_host(eager(*inputs))
        shape.calls += 1
        try:
            if shape.graph is not None:
                allowed = 0.0 if exact else TOLERANCES.get(mode, TOLERANCE)
                found, count = to_host(shape.graph(*inputs)), len(answer) - chosen
                self._judge(shape, found[:count], answer[:count], allowed)
            elif shape.calls == (AFTER_OF_JOB if exact else AFTER):
                given = tuple(x.detach().clone() for x in inputs)
                shape.graph = self._make(eager, given, exact)
        except RuntimeError as error:
            if accelerator_failed(error):
                raise
            self._reject(shape, "raised", str(error))
        # Of too many shapes or graphs, what was used the longest ago goes.
        held = [key for key, one in self._shapes.items() if one.graph is not None]
        for old in held[: max(0, len(held) - MAX_GRAPHS)]:
            del self._shapes[old]
        while len(self._shapes) > MAX_SHAPES:
            self._shapes.popitem(last=False)
        self._metrics.graphs.set(sum(one.trusted for one in self._shapes.values()))
        return answer

    def drop(self) -> None:
        """Let go of every graph, and of its memory; shapes that come often are captured again."""
        self._shapes.clear()
        self.crowd = False
        self._metrics.graphs.set(0)

    def _judge(self, shape: _Shape, found: Tensor, wanted: Tensor, allowed: float) -> None:
        # A margin may be infinite, and so is its equal.
        apart = torch.where(found == wanted, 0.0, (found - wanted).abs()).max()
        largest = wanted.abs().nan_to_num(posinf=0.0).max()
        difference = float(apart / largest.clamp(min=1e-30))
        shape.trusted = difference <= allowed  # NaN is not
        if shape.trusted:
            log.info("graph_captured", difference=difference)
        else:
            self._reject(shape, "differs", difference)

    def _reject(self, shape: _Shape, reason: str, found: float | str) -> None:
        shape.graph = None
        self._metrics.graphs_rejected.labels(reason).inc()
        log.warning("graph_rejected", reason=reason, found=found)
