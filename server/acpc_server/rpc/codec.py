"""Writes arrays and times as messages."""

from __future__ import annotations

import time

import numpy as np
from acpc import contract
from acpc.v1 import tensor_pb2

from acpc_server.scheduling import RequestContext


def write_tensor(array: np.ndarray) -> tensor_pb2.Tensor:
    """A Tensor message with the array's values."""
    return contract.write_tensor(array)


def spent(context: RequestContext, started: float) -> contract.Timing:
    """Timing of the request behind a context, parsed at ``started`` by the performance counter."""
    total = time.perf_counter() - started
    return contract.Timing(context.queue_seconds, context.compute_seconds, total)
