"""One server for all end-to-end tests, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from acpc_client.sync.client import AcpcClient
from served_world import ServedWorld, write_world
from server_process import ServerProcess


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> ServedWorld:
    return write_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def server(world: ServedWorld) -> Iterator[ServerProcess]:
    with ServerProcess(world.checkpoint_root, world.dataset_root, world.state_dir) as process:
        yield process
        assert process.bugs() == []


@pytest.fixture(scope="session")
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.address) as opened:
        yield opened


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[AcpcClient]:
    with AcpcClient(server.address) as opened:
        yield opened
