"""Schedules a device: admission control, a concurrency limit, and a queue with dynamic batching."""

from acpc_server.scheduling.admission import AdmissionController, CallRequests
from acpc_server.scheduling.callers import (
    RETRY_SECONDS,
    CallerLimits,
    Quota,
    Resource,
    has_place,
)
from acpc_server.scheduling.context import Priority, RequestContext
from acpc_server.scheduling.gate import ConcurrencyLimiter, Slots, Turns
from acpc_server.scheduling.latency import LatencyModel, Work
from acpc_server.scheduling.memory import memory_short
from acpc_server.scheduling.queue import BatchQueue, Chunk
from acpc_server.scheduling.workers import WorkerPool
