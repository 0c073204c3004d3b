"""What access control costs: CertifyPool of 64 x 5 with each kind of credentials and without any.

    python benchmarks/access.py [--rounds 1000] [--out build/benchmarks/access.json]

Two servers, one that asks who calls and one that does not, are asked in turn, so that all kinds see
the same machine. What ``identify`` takes is also measured alone.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from acpc.contract import GaussianNoise
from acpc_client import AcpcClient
from acpc_server.access import AccessControl, AccessOptions, Role, TlsFiles, create_key
from acpc_server.observe import Metrics
from common import CHECKPOINTS, ROUNDS, run, spread
from credentials import Authority, public_pem, token
from cryptography.hazmat.primitives.asymmetric import rsa
from load import HISTORY, SIDE, WIDTH, quantiles
from server_process import ServerProcess

MODEL, CANDIDATES, HORIZON = "two-room-base", 64, 5
METHOD = "/acpc.v1.DiagnosticService/CertifyPool"
ACCESS = """
issuers:
  - {name: login, issuer: 'https://login.example', audience: acpc, key_file: issuer.pem,
     roles_claim: scope}
principals:
  - {name: planner, roles: [plan], spiffe: ['spiffe://example/planner']}
"""
Ask = Callable[[int], None]


def pool_call(client: AcpcClient) -> Ask:
    """A CertifyPool with a history that is not in the cache."""
    rng = np.random.default_rng(0)
    history = rng.integers(0, 256, (HISTORY, SIDE, SIDE, 3), dtype=np.uint8)
    past = rng.standard_normal((HISTORY - 1, WIDTH)).astype(np.float32)
    goal = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    pool = rng.standard_normal((CANDIDATES, HORIZON, WIDTH)).astype(np.float32)

    def ask(seed: int) -> None:
        client.certify_pool(
            MODEL,
            history,
            pool,
            goal,
            past_blocks=past,
            perturbations=GaussianNoise(0.08),
            seed=seed,
            elite_count=8,
        )

    return ask


def in_turn(asks: dict[str, Ask], rounds: int) -> dict[str, Any]:
    """Quantiles of each, and of the difference to the first within a round."""
    names = list(asks)
    times: dict[str, list[float]] = {name: [] for name in names}
    for seed in range(rounds):
        for shift in range(len(names)):  # nobody is always first
            name = names[(seed + shift) % len(names)]
            started = time.perf_counter()
            asks[name](seed)
            times[name].append(time.perf_counter() - started)
    warm = rounds // 10
    seen = {name: np.array(values[warm:]) for name, values in times.items()}
    first = seen[names[0]]
    return {
        name: {
            **quantiles(list(values)),
            "p50_over_first_ms": 1e3 * float(np.median(values) - np.median(first)),
            "median_difference_ms": spread(
                [1e3 * float(np.median(part)) for part in np.array_split(values - first, ROUNDS)]
            ),
        }
        for name, values in seen.items()
    }


def alone(
    access: AccessControl,
    metadata: Sequence[tuple[str, str | bytes]],
    auth: dict[str, list[bytes]],
    rounds: int = 20_000,
) -> float:
    """Microseconds of one ``identify``."""
    access.identify(METHOD, metadata, auth)
    started = time.perf_counter()
    for _ in range(rounds):
        access.identify(METHOD, metadata, auth)
    return 1e6 * (time.perf_counter() - started) / rounds


def set_up(folder: Path, keys: Path) -> tuple[AccessControl, dict[str, list[bytes]]]:
    """Access control by every kind of credentials, and what gRPC tells of a certificate."""
    authority = Authority()
    certificate, private = authority.issue("localhost").write(folder, "server")
    (folder / "ca.pem").write_bytes(authority.pem)
    (folder / "crl.pem").write_bytes(authority.revoke())
    options = AccessOptions(
        access_file=folder / "access.yaml",
        keys_file=keys,
        tls=TlsFiles(certificate, private, folder / "ca.pem"),
        revocations=folder / "crl.pem",
    )
    peer = authority.issue("x", spiffe="spiffe://example/planner").auth_context()
    return AccessControl(options, Metrics()), peer


def report(rounds: int = 1000) -> dict[str, Any]:
    """Both: ``identify`` alone, and calls in turn."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        signer = rsa.generate_private_key(65537, 2048)
        (folder / "issuer.pem").write_bytes(public_pem(signer))
        (folder / "access.yaml").write_text(ACCESS)
        keys = folder / "keys.json"
        key = create_key(keys, principal="ci", tenant="", roles=frozenset(Role), expires=None)
        for other in range(999):  # as many as a large group has
            create_key(keys, principal=f"p{other}", tenant="", roles=frozenset(Role), expires=None)
        jwt = token(signer, "RS256", scope="plan read", exp=time.time() + 86_400)
        access, peer = set_up(folder, keys)
        micro = {
            "api_key_us": alone(access, [("authorization", f"Bearer {key}")], {}),
            "jwt_us": alone(access, [("authorization", f"Bearer {jwt}")], {}),
            "certificate_us": alone(access, [], peer),
        }
        data = folder / "data"
        data.mkdir()
        flags = {"keys_file": keys, "access_file": folder / "access.yaml"}
        with (
            ServerProcess(CHECKPOINTS, data, folder / "a") as plain,
            ServerProcess(CHECKPOINTS, data, folder / "b", **flags) as guarded,
            AcpcClient(plain.address) as nobody,
            AcpcClient(plain.address) as again,
            AcpcClient(guarded.address, token=key) as by_key,
            AcpcClient(guarded.address, token=jwt) as by_token,
        ):
            asks = {
                "without": pool_call(nobody),
                "without_again": pool_call(again),
                "api_key": pool_call(by_key),
                "jwt": pool_call(by_token),
            }
            return {"identify": micro, "certify_pool_64x5": in_turn(asks, rounds)}


if __name__ == "__main__":
    run(report)
