"""A server on Unix sockets: both clients, the probe, credentials, and names that are taken."""

import asyncio
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import processes
import pytest
import wire
from acpc_client import AcpcClient, AsyncAcpcClient, GaussianNoise, PairComparison
from acpc_client.errors import Unauthenticated
from acpc_server.access import Role, create_key
from credentials import Authority
from served_world import ServedWorld
from waiting import GENEROUS_SECONDS

PROBE = [sys.executable, "-m", "acpc_server.health_check", "--timeout", str(GENEROUS_SECONDS)]


@pytest.fixture
def path() -> Iterator[Path]:
    """A name that is short enough wherever temporary folders are."""
    with TemporaryDirectory(prefix="acpc") as folder:
        yield Path(folder) / "acpc.sock"


def test_both_clients_and_the_probe_and_what_a_dead_server_left(
    world: ServedWorld, path: Path, tmp_path: Path
) -> None:
    other = path.with_name("other.sock")
    sockets = f"unix:{path},unix://{other}"
    arguments = ("lewm", wire.frames(2), wire.blocks(3))
    with world.server(tmp_path, listen=sockets, port=-1, socket_mode="600") as served:
        assert served.port == -1
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with AcpcClient(f"unix:{path}") as client:
            one = client.compare_pair(*arguments, perturbations=GaussianNoise(0.1))

        async def ask() -> PairComparison:
            async with AsyncAcpcClient(f"unix://{other}") as client:
                return await client.compare_pair(*arguments, perturbations=GaussianNoise(0.1))

        two = asyncio.run(ask())
        assert one.results == two.results
        probed = processes.run([*PROBE, "--host", f"unix:{path}"])
        assert "SERVING" in probed.stdout
        with pytest.raises(RuntimeError, match="another server listens there"):
            world.server(tmp_path / "second", listen=f"unix:{path}").start()
        assert path.is_socket()
        served.kill()
        assert path.is_socket()
        served.start()
        with AcpcClient(f"unix:{path}") as client:
            assert client.checkpoints.get("lewm")
        assert served.terminate() == 0
        assert not path.exists()
        assert not other.exists()


def test_a_socket_beside_tls_is_plain_text_and_wants_credentials(
    world: ServedWorld, path: Path, tmp_path: Path
) -> None:
    certificate, key_file = Authority().issue("localhost").write(tmp_path, "server")
    keys = tmp_path / "keys.json"
    key = create_key(keys, principal="ci", tenant="lab", roles=frozenset(Role), expires=None)
    secure = {"tls_certificate": certificate, "tls_key": key_file, "listen": f"unix:{path}"}
    with world.server(tmp_path / "state", keys_file=keys, **secure) as served:
        with AcpcClient(f"unix:{path}", token=key) as client:
            assert client.checkpoints.get("lewm")
        with AcpcClient(f"unix:{path}") as client, pytest.raises(Unauthenticated):
            client.checkpoints.get("lewm")
        line = served.wait_for_log(lambda line: line["event"] == "access_denied")
        assert line["peer"] == "unix:"
        line = served.wait_for_log(lambda line: line["event"] == "rpc")
        assert (line["principal"], line["peer"]) == ("ci", "unix:")
