"""The worlds and servers of tests that need no other: one a session, and one a file with jobs."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

import grpc
import pytest
from acpc_client.sync.client import AcpcClient
from filelock import FileLock
from job_world import JobCaller, JobWorld, write_job_world
from served_world import ServedWorld, write_world
from server_process import ServerProcess, free_port


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> ServedWorld:
    written = write_world(tmp_path_factory.mktemp("world"))
    copytree(_dino_of_all_workers(tmp_path_factory), written.checkpoint_root, dirs_exist_ok=True)
    return written


def _dino_of_all_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the PreJEPA checkpoint, written by the first worker: it takes seconds."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with FileLock(shared / "dino.lock"):
        if not (folder := shared / "dino").exists():
            from given_wire import write_dino  # loads the public library's networks

            write_dino(shared / "part")
            (shared / "part").rename(folder)
    return folder


@pytest.fixture(scope="session")
def server(world: ServedWorld) -> Iterator[ServerProcess]:
    with world.server() as process:
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


@pytest.fixture(scope="module")
def job_world(tmp_path_factory: pytest.TempPathFactory) -> JobWorld:
    return write_job_world(tmp_path_factory.mktemp("jobs"))


@pytest.fixture(scope="module")
def job_server(job_world: JobWorld) -> Iterator[ServerProcess]:
    """A server of them, which a restart finds at the same port."""
    with job_world.server("state", port=free_port()) as process:
        yield process
        assert process.bugs() == []


@pytest.fixture(scope="module")
def calls(job_server: ServerProcess) -> Iterator[JobCaller]:
    with grpc.insecure_channel(job_server.address) as opened:
        yield JobCaller(opened)


@dataclass(frozen=True)
class Demo:
    """The demo's checkpoints and its world, 30 episodes of it, below ``root``, and their server."""

    root: Path
    server: ServerProcess

    @property
    def datasets(self) -> Path:
        return self.root / "datasets"


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    from golden import WORLD, write_world

    root = tmp_path_factory.mktemp("demo")
    copytree(WORLD / "checkpoints", root / "checkpoints")
    (root / "datasets").mkdir()
    write_world(root / "datasets")
    with ServerProcess(root / "checkpoints", root / "datasets", root / "state") as process:
        yield Demo(root, process)
        assert process.bugs() == []
