"""A checkpoint, an engine, and anchors that a job measures."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from acpc_server.engine import DeviceClient
from acpc_server.models import FrozenWorldModel, load_checkpoint
from acpc_server.observe import Metrics
from public_checkpoint import public_config, write_checkpoint

HISTORY = 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> FrozenWorldModel:
    root = tmp_path_factory.mktemp("checkpoints")
    write_checkpoint(root / "one", public_config(), seed=4)
    return load_checkpoint(root, "one", device=torch.device("cpu"))


@pytest.fixture(scope="module")
def engine() -> Iterator[DeviceClient]:
    opened = DeviceClient(torch.device("cpu"), Metrics())
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def arrays() -> Callable[[int, int], dict[str, np.ndarray | int]]:
    def made(count: int, horizon: int) -> dict[str, np.ndarray | int]:
        rng, steps = np.random.default_rng(2), HISTORY + horizon
        return {
            "history": HISTORY,
            "frames": rng.integers(0, 256, (count, steps, 28, 28, 3), dtype=np.uint8),
            "action_blocks": rng.standard_normal((count, steps - 1, 10)).astype("f4"),
            "endpoint_states": rng.standard_normal((count, 2)),
            "labels": np.arange(count) % 2,
            "anchor_ids": np.arange(100, 100 + count),
            "trajectory_ids": np.arange(count),
        }

    return made
