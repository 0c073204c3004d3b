"""One world and one server, in a process of its own, for all tests that need no other."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from acpc_client.sync.client import AcpcClient
from served_world import ServedWorld, write_world
from server_process import ServerProcess


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> ServedWorld:
    from given_wire import write_dino  # loads the public library's networks

    written = write_world(tmp_path_factory.mktemp("world"))
    write_dino(written.checkpoint_root)
    return written


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
