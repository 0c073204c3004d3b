"""Everything that asks a server gets into one that wants credentials, over TLS."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import processes
import pytest
from acpc_client import (
    Access,
    AcpcClient,
    AsyncAcpcClient,
    DatasetAnchors,
    GaussianNoise,
    ScoreProtocol,
    Tls,
    make_access,
)
from acpc_client.errors import Unauthenticated
from acpc_lab.integrations import EpochScorer
from acpc_lab.sweeps import Sweep
from acpc_server.access import Role, create_key
from credentials import Authority
from job_world import write_job_world
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS

ACPC = str(Path(sys.executable).with_name("acpc"))
ANCHORS = DatasetAnchors("rooms.h5", "tworoom", count=10)
NOISE = GaussianNoise(0.08)
PROTOCOL = ScoreProtocol(draws=1)


@dataclass(frozen=True)
class Guarded:
    """A server that wants credentials, and the files of a caller who has them."""

    server: ServerProcess
    ca: Path
    token_file: Path
    key: str

    @property
    def access(self) -> Access:
        return make_access(tls_ca=self.ca, token_file=self.token_file)

    def acpc(self, *arguments: str, environment: Mapping[str, str]) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of the command, with nothing of this process's variables."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("ACPC_")}
        ran = processes.run(
            [ACPC, *arguments, "--target", self.server.address],
            check=False,
            env={**plain, **environment},
        )
        assert self.key not in ran.stdout + ran.stderr
        return ran.returncode, ran.stdout, ran.stderr


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    authority = Authority()
    (folder / "ca.pem").write_bytes(authority.pem)
    certificate, key_file = authority.issue("localhost").write(folder, "server")
    key = create_key(folder / "keys.json", "ci", Role.COMPUTE)
    token_file = folder / "token"
    token_file.write_text(f"{key}\n")
    world = write_job_world(folder / "world")
    flags = {
        "keys_file": folder / "keys.json", "tls_certificate": certificate, "tls_key": key_file,
    }  # fmt: skip
    with world.server("state", **flags) as server:
        yield Guarded(server, folder / "ca.pem", token_file, key)
        assert key not in json.dumps(server.log())
        assert server.bugs() == []


def test_both_clients(guarded: Guarded) -> None:
    target = guarded.server.address
    with AcpcClient(target, **guarded.access) as client:
        job = client.score_checkpoint("model", ANCHORS, NOISE, protocol=PROTOCOL)
        found = job.result(GENEROUS_SECONDS)
        assert {one.caller for one in client.operations.list()} == {"ci"}

    async def look() -> float:
        async with AsyncAcpcClient(target, **guarded.access) as client:
            return (await client.operations.get(job.name)).result().checkpoint.sr

    assert asyncio.run(look()) == found.checkpoint.sr
    with (
        AcpcClient(target, tls=Tls(guarded.ca)) as stranger,
        pytest.raises(Unauthenticated, match="ACPC_TOKEN_FILE"),
    ):
        stranger.operations.get(job.name)


def test_the_command_by_flags_and_by_variables(guarded: Guarded) -> None:
    listing = ("checkpoints", "list", "--json")
    flags = ("--tls-ca", str(guarded.ca), "--token-file", str(guarded.token_file))
    files = {"ACPC_TLS_CA": str(guarded.ca), "ACPC_TOKEN_FILE": str(guarded.token_file)}
    key = {"ACPC_TLS_CA": str(guarded.ca), "ACPC_API_KEY": guarded.key}
    for more, environment in ((flags, {}), ((), files), ((), key)):
        code, out, err = guarded.acpc(*listing, *more, environment=environment)
        assert code == 0, err
        assert len(json.loads(out)) == 3
    code, _, err = guarded.acpc(*listing, environment={"ACPC_TLS_CA": str(guarded.ca)})
    assert code == 1
    assert "UNAUTHENTICATED" in err
    assert "--token-file" in err


def test_epochs_and_sweeps(guarded: Guarded, tmp_path: Path) -> None:
    target = guarded.server.address
    with EpochScorer(target, ANCHORS, NOISE, protocol=PROTOCOL, **guarded.access) as scorer:
        scorer.submit(0, "model")
        assert scorer.drain(GENEROUS_SECONDS)
        (epoch,) = scorer.arrived()
    assert epoch.error is None
    files = {"tls": {"ca_file": str(guarded.ca)}, "token_file": str(guarded.token_file)}
    document = {
        "server": {"target": target, **files},
        "checkpoints": ["model"],
        "anchors": {"dataset": "rooms.h5", "task": "tworoom", "count": 10},
        "shifts": [{"gaussian_noise": [0.08]}],
        "protocol": {"draws": 1},
    }
    file = tmp_path / "sweep.yaml"
    file.write_text(json.dumps(document))
    spec = Sweep.load(file).spec
    with AcpcClient(target, **spec.access) as client:
        (cell,) = Sweep.load(file).run(client, poll=0.05)
    assert cell.score.checkpoint.sr == epoch.score.checkpoint.sr
