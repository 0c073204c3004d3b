"""Sole owner of the accelerator: queue, chunks, priorities, loaded checkpoints."""

from acpc_server.engine.accelerator import (
    choose_device,
    device_name,
    report_memory,
    software,
    to_device,
    to_host,
)
from acpc_server.engine.arithmetic import equal_rows, first_equal, latent_dtype, require_mode
from acpc_server.engine.caches import CachedCheckpoint, CheckpointCache
from acpc_server.engine.client import DeviceClient
from acpc_server.engine.owner import DeviceCall, DeviceContext
from acpc_server.engine.programs import StepPrograms, private_folder
from acpc_server.engine.self_test import require_device, self_test
from acpc_server.engine.sizes import (
    frames_per_call,
    held_rows,
    pool_candidates_per_call,
    pool_rows_per_call,
    rollouts_per_call,
)
