"""Sole owner of the accelerator: queue, chunks, priorities, loaded checkpoints."""

from acpc_server.engine.checkpoints import CheckpointCache, CheckpointStatus, LoadedCheckpoint
from acpc_server.engine.desks import Desks
from acpc_server.engine.device import DeviceEngine
from acpc_server.engine.modes import NumericMode
from acpc_server.engine.ticket import Priority, Ticket

__all__ = [
    "CheckpointCache",
    "CheckpointStatus",
    "Desks",
    "DeviceEngine",
    "LoadedCheckpoint",
    "NumericMode",
    "Priority",
    "Ticket",
]
