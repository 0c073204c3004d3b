"""Writes arrays and times as messages."""

from __future__ import annotations

import numpy as np
from acpc import contract
from acpc.v1 import tensor_pb2

from acpc_server.scheduling import RequestContext


def write_tensor(array: np.ndarray) -> tensor_pb2.Tensor:
    """A Tensor message with the array's values."""
    return contract.write_tensor(array)


def spent(context: RequestContext) -> contract.Timing:
    """Where the time of a request has gone so far."""
    return contract.Timing(context.queue_seconds, context.compute_seconds, context.total_seconds)
