"""What tests of the client and of the lab share: a scripted server on a socket, and its inputs."""

from collections.abc import Iterator

import numpy as np
import pytest
from client_counterparty import Counterparty, served
from server_process import free_port

HISTORY = np.arange(3 * 4 * 5 * 3, dtype=np.uint8).reshape(3, 4, 5, 3)
BLOCKS = np.linspace(-1, 1, 4 * 2, dtype=np.float32).reshape(4, 2)


@pytest.fixture
def counterparty() -> Counterparty:
    return Counterparty()


@pytest.fixture
def target(counterparty: Counterparty) -> Iterator[str]:
    with served(counterparty) as address:
        yield address


@pytest.fixture
def unused_target() -> str:
    return f"127.0.0.1:{free_port()}"
