"""Admission control, concurrency limits and the batch queue of a device."""

from acpc_server.scheduling.desks import Desks
from acpc_server.scheduling.gate import Gate
from acpc_server.scheduling.pace import Pace
from acpc_server.scheduling.queue import RETRY_SECONDS, Chunk, ChunkQueue
from acpc_server.scheduling.threads import RpcThreads
from acpc_server.scheduling.ticket import Priority, Ticket
