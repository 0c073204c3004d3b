"""One engine on the CPU, and one small checkpoint, for the tests of a process."""

from collections.abc import Iterator

import pytest
import torch
from acpc_server.engine import DeviceClient
from acpc_server.models import FrozenJepa, load_checkpoint
from acpc_server.observe import Metrics
from public_checkpoint import write_checkpoint

CPU = torch.device("cpu")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> FrozenJepa:
    root = tmp_path_factory.mktemp("checkpoints")
    write_checkpoint(root / "one", seed=4)
    return load_checkpoint(root, "one", device=CPU)


@pytest.fixture(scope="session")
def engine() -> Iterator[DeviceClient]:
    opened = DeviceClient(CPU, Metrics(), threads=1)
    yield opened
    opened.close()
