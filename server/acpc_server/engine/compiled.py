"""Compiles the rollout of candidate pools whose shape comes often.

A planner asks for the same shape thousands of times. Once a shape has come often enough, its
rollout is compiled (CPU) or captured as a CUDA graph, and used only if it answers as the eager
rollout does. Whatever goes wrong, the eager rollout is used.
"""

from __future__ import annotations

import tempfile
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

import structlog
import torch
from acpc.contract import NumericMode
from torch import Tensor

from acpc_server.engine.compiler import CompilationFailed, Compute, compile_pool
from acpc_server.models import FrozenWorldModel, rollout_pool
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.engine")
# A fast rollout holds a copy of the predictor's weights, or the memory of a graph.
MAX_SHAPES = 4
# Largest difference from the eager answer, relative to its largest number.
TOLERANCE = 1e-5
WARM_UP = 3


@dataclass
class _Shape:
    """What is known about one shape."""

    seen: int = 0
    fast: Compute | None = None
    verified: bool = False
    rejected: bool = False


class RepeatedPools:
    """Rolls pools forward, repeated shapes by compiled rollouts. For the device's thread only.

    Args:
        after: Pools of one shape before it is compiled; 0: never.
        threads: CPU threads a compiled rollout computes on.
    """

    def __init__(self, device: torch.device, metrics: Metrics, *, after: int, threads: int) -> None:
        self._device = device
        self._metrics = metrics
        self._after = after
        self._threads = threads
        self._shapes: OrderedDict[Hashable, _Shape] = OrderedDict()
        self._compiling = threading.Lock()  # one at a time: it takes a core

    def rollout(
        self, model: FrozenWorldModel, inputs: tuple[Tensor, Tensor, Tensor], mode: NumericMode
    ) -> Tensor:
        """As ``rollout_pool(model, *inputs)``, (v, j, horizon, dim)."""
        # On a CPU only float32 gains: elsewhere autocast would have to be compiled in.
        on_cpu = self._device.type == "cpu"
        exact = mode is NumericMode.FP64  # what seldom comes often
        if not self._after or exact or (on_cpu and mode is not NumericMode.FP32):
            return rollout_pool(model, *inputs)
        key = (model.card.digest, mode, *(tuple(x.shape) for x in inputs))
        shape = self._remember(key)
        if shape.fast is not None and shape.verified:
            return shape.fast(*inputs)
        eager = rollout_pool(model, *inputs)
        if shape.fast is not None:
            self._verify(shape, shape.fast(*inputs), eager)
        elif not shape.rejected and shape.seen >= self._after:
            self._start(model, shape, tuple(x.detach().clone() for x in inputs))
        return eager

    def _remember(self, key: Hashable) -> _Shape:
        shape = self._shapes.setdefault(key, _Shape())
        self._shapes.move_to_end(key)
        shape.seen += 1
        while len(self._shapes) > MAX_SHAPES:
            _, oldest = self._shapes.popitem(last=False)
            self._metrics.fast_pools.dec(int(oldest.verified))
        return shape

    def _verify(self, shape: _Shape, answer: Tensor, eager: Tensor) -> None:
        difference = (answer - eager).abs().max() / eager.abs().max().clamp_min(1e-30)
        shape.verified = bool(difference <= TOLERANCE)  # NaN does not pass
        if shape.verified:
            self._metrics.fast_pools.inc()
            log.info("pool_compiled", difference=float(difference))
        else:
            shape.fast, shape.rejected = None, True
            log.warning("pool_compilation_rejected", difference=float(difference))

    def _start(self, model: FrozenWorldModel, shape: _Shape, inputs: tuple[Tensor, ...]) -> None:
        shape.rejected = True  # until it has worked
        if self._device.type == "cuda":
            try:
                shape.fast = capture(model, inputs)
                shape.rejected = False
            except RuntimeError as error:
                log.warning("graph_capture_failed", error=str(error))
            return
        thread = threading.Thread(
            target=self._compile, args=(model, shape, inputs), name="compiler", daemon=True
        )
        thread.start()

    def _compile(self, model: FrozenWorldModel, shape: _Shape, inputs: tuple[Tensor, ...]) -> None:
        with self._compiling, tempfile.TemporaryDirectory(prefix="acpc-pool-") as folder:
            log.info("pool_compiling", shapes=[tuple(x.shape) for x in inputs])
            try:
                shape.fast = compile_pool(model, inputs, Path(folder), self._threads)
                shape.rejected = False
            except (CompilationFailed, RuntimeError, OSError) as error:
                log.warning("pool_compilation_failed", error=str(error))


def capture(model: FrozenWorldModel, inputs: tuple[Tensor, ...]) -> Compute:
    """The rollout as a CUDA graph: one launch instead of hundreds."""
    held = [x.clone() for x in inputs]
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    # A cast that autocast cached before the capture would not be part of the graph.
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                rollout_pool(model, held[0], held[1], held[2])
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = rollout_pool(model, held[0], held[1], held[2])
    finally:
        torch.set_autocast_cache_enabled(True)

    def replay(*tensors: Tensor) -> Tensor:
        for buffer, tensor in zip(held, tensors, strict=True):
            buffer.copy_(tensor)
        graph.replay()
        return out.clone()

    return replay
