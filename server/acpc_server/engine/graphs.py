"""Captures a computation as a CUDA graph: one launch instead of hundreds."""

from __future__ import annotations

import torch
from torch import Tensor

from acpc_server.engine.compiler import Compute

WARM_UP = 3


def capture(compute: Compute, inputs: tuple[Tensor, ...]) -> Compute:
    """``compute`` for inputs of these very shapes, replayed; each answer is a copy of its own.

    Raises:
        RuntimeError: The computation cannot be captured.
    """
    held = [x.clone() for x in inputs]
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    # A cast that autocast cached before the capture would not be part of the graph.
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                compute(*held)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = compute(*held)
    finally:
        torch.set_autocast_cache_enabled(True)

    def replay(*tensors: Tensor) -> Tensor:
        for buffer, tensor in zip(held, tensors, strict=True):
            buffer.copy_(tensor)
        graph.replay()
        return out.clone()

    # The graph reads the weights where they lie, so they must stay when the checkpoint is unloaded.
    replay.compute = compute  # type: ignore[attr-defined]
    return replay
