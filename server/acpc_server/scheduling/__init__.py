"""Admission control, concurrency limits and the batch queue of a device."""

from acpc_server.scheduling.concurrency import ConcurrencyLimiter
from acpc_server.scheduling.context import Priority, RequestContext
from acpc_server.scheduling.gate import Gate
from acpc_server.scheduling.pace import Pace
from acpc_server.scheduling.queue import RETRY_SECONDS, BatchQueue, Chunk
from acpc_server.scheduling.workers import WorkerPool
