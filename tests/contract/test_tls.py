"""A server with a certificate: who trusts it is served; files that are no use stop the start."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import wire
from acpc.contract import GaussianNoise
from acpc_client.sync.client import AcpcClient
from acpc_client.transport.channel import Tls
from credentials import Authority
from served_world import ServedWorld
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of a server, and of the authority that has issued them."""
    folder, authority = tmp_path_factory.mktemp("tls"), Authority()
    (folder / "ca.pem").write_bytes(authority.pem)
    authority.issue("localhost", dns=("gpu-host",)).write(folder, "server")
    return folder


@pytest.fixture(scope="module")
def secure(
    world: ServedWorld, certificates: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    state = tmp_path_factory.mktemp("state")
    files = certificates / "server.pem", certificates / "server.key"
    with world.server(state, tls_certificate=files[0], tls_key=files[1]) as server:
        yield server


def compare(server: ServerProcess, tls: Tls) -> float:
    with AcpcClient(server.address, tls=tls, timeout=GENEROUS_SECONDS) as client:
        answer = client.compare_pair(
            "lewm", wire.frames(3), wire.blocks(), perturbations=GaussianNoise(0.08)
        )
    return answer.results[0].acpc


def test_a_client_that_trusts_the_certificate(secure: ServerProcess, certificates: Path) -> None:
    for ca in ("ca.pem", "server.pem"):
        assert compare(secure, Tls(ca_file=certificates / ca)) > 0
    assert compare(secure, Tls(certificates / "ca.pem", server_name="gpu-host")) > 0


@pytest.mark.parametrize("missing", ["certificate", "key"])
def test_unusable_files_stop_the_start(
    world: ServedWorld, certificates: Path, tmp_path: Path, missing: str
) -> None:
    """A server that was asked for TLS and cannot give it must not serve plain text instead."""
    files = {"certificate": certificates / "server.pem", "key": certificates / "server.key"}
    files[missing] = tmp_path / "absent.pem"
    flags = {"tls_certificate": files["certificate"], "tls_key": files["key"]}
    server = world.server(tmp_path / "state", **flags)
    with pytest.raises(RuntimeError, match=r"absent\.pem"):
        server.start()
    assert server.wait() != 0
