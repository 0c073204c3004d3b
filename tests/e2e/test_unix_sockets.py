"""A server on a Unix socket: both clients, and credentials."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import wire
from acpc_client import AcpcClient, AsyncAcpcClient, GaussianNoise, PairComparison
from acpc_client.errors import Unauthenticated
from acpc_server.access import Role, create_key
from served_world import ServedWorld


@pytest.fixture
def path() -> Iterator[Path]:
    """A name that is short enough wherever temporary folders are."""
    with TemporaryDirectory(prefix="acpc") as folder:
        yield Path(folder) / "acpc.sock"


def test_both_clients_and_a_restart(world: ServedWorld, path: Path, tmp_path: Path) -> None:
    arguments = ("lewm", wire.frames(2), wire.blocks(3))
    with world.server(tmp_path, host=f"unix:{path}") as served:
        with AcpcClient(f"unix:{path}") as client:
            one = client.compare_pair(*arguments, perturbations=GaussianNoise(0.1))

        async def ask() -> PairComparison:
            async with AsyncAcpcClient(f"unix://{path}") as client:
                return await client.compare_pair(*arguments, perturbations=GaussianNoise(0.1))

        two = asyncio.run(ask())
        assert one.results == two.results
        served.kill()
        assert path.is_socket()
        served.start()
        with AcpcClient(f"unix:{path}") as client:
            assert client.checkpoints.get("lewm")
        assert served.terminate() == 0


def test_a_socket_asks_for_credentials(world: ServedWorld, path: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    key = create_key(keys, "ci", Role.READ)
    with world.server(tmp_path / "state", keys_file=keys, host=f"unix:{path}") as served:
        with AcpcClient(f"unix:{path}", token=key) as client:
            assert client.checkpoints.get("lewm")
        with AcpcClient(f"unix:{path}") as client, pytest.raises(Unauthenticated):
            client.checkpoints.get("lewm")
        line = served.wait_for_log(lambda line: line["event"] == "denied")
        assert line["peer"] == "unix:"
        line = served.wait_for_log(lambda line: line["event"] == "rpc")
        assert (line["principal"], line["peer"]) == ("ci", "unix:")


def test_a_folder_that_is_not_there_is_one_line(
    world: ServedWorld, path: Path, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match=r"cannot listen on unix:.*choose another --host"):
        world.server(tmp_path, host=f"unix:{path.parent}/absent/acpc.sock").start()
