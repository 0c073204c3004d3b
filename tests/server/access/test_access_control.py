"""Who is admitted, by each kind of credentials, and what changes under a running server."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from acpc_server.access import (
    AccessControl,
    Role,
    TlsFiles,
    create_key,
    revoke_key,
)
from acpc_server.errors import Unauthenticated
from acpc_server.observe import Metrics
from credentials import Authority
from waiting import wait_until

GET = "/google.longrunning.Operations/GetOperation"
ROOT = Authority()


def control(**options: Any) -> AccessControl:
    return AccessControl(Metrics(), **options)


def bearer(text: str) -> list[tuple[str, str | bytes]]:
    return [("user-agent", "test"), ("authorization", f"Bearer {text}")]


def reason(access: AccessControl, metadata: list[tuple[str, str | bytes]]) -> str:
    with pytest.raises(Unauthenticated) as caught:
        access.identify(GET, metadata, {})
    return caught.value.reason


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def tls_files(tmp_path: Path, authority: Authority = ROOT) -> TlsFiles:
    certificate, key = authority.issue("localhost").write(tmp_path, "server")
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.pem)
    return TlsFiles(certificate, key, ca)


def test_an_unknown_key_and_a_wrong_secret_are_answered_alike(keys: Path) -> None:
    text = create_key(keys, "ci", Role.READ)
    access = control(keys_file=keys)
    messages = set()
    for wrong in (text[:-1] + "x", f"acpc_{'0' * 12}_{text[-64:]}", text[:-64] + "0" * 64):
        with pytest.raises(Unauthenticated) as caught:
            access.identify(GET, bearer(wrong), {})
        messages.add(caught.value.message)
    assert len(messages) == 1


def test_an_expired_key(keys: Path) -> None:
    text = create_key(keys, "ci", Role.ADMIN, datetime(2020, 1, 1, tzinfo=UTC))
    assert reason(control(keys_file=keys), bearer(text)) == "EXPIRED_CREDENTIALS"


def test_a_key_counts_before_a_certificate(keys: Path, tmp_path: Path) -> None:
    text = create_key(keys, "ci", Role.READ)
    access = control(tls=tls_files(tmp_path), keys_file=keys)
    connection = {"x509_common_name": [b"planner"]}
    assert access.identify(GET, bearer(text), connection).name == "ci"
    with pytest.raises(Unauthenticated):
        access.identify(GET, bearer("acpc_x"), connection)


@pytest.mark.parametrize("name", ["a\nb", "x" * 300, "spiffe://d/planner"])
def test_a_common_name_that_cannot_be_a_callers(tmp_path: Path, name: str) -> None:
    """The last one is what an authority checks as an id of a workload, not as a common name."""
    access = control(tls=tls_files(tmp_path))
    with pytest.raises(Unauthenticated, match="cannot be a caller's"):
        access.identify(GET, [], {"x509_common_name": [name.encode()]})


@pytest.fixture(autouse=True)
def changes_are_soon_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acpc_server.access.files.POLL_SECONDS", 0.05)


def admitted(access: AccessControl, text: str) -> bool:
    try:
        access.identify(GET, bearer(text), {})
    except Unauthenticated:
        return False
    return True


def test_a_changed_file_counts_and_a_broken_one_does_not(keys: Path) -> None:
    first = create_key(keys, "ci", Role.READ)
    metrics = Metrics()
    access = AccessControl(metrics, keys_file=keys)
    second = create_key(keys, "later", Role.READ)
    wait_until(lambda: admitted(access, second))
    revoke_key(keys, first.split("_")[1])
    wait_until(lambda: not admitted(access, first))
    kept = keys.read_text()
    keys.write_text("broken")

    def value(name: str, **labels: str) -> float | None:
        assert admitted(access, second)  # files are looked at when somebody calls
        return metrics.registry.get_sample_value(name, {"what": "keys", **labels})

    wait_until(lambda: value("acpc_access_reloads_total", result="failed"))
    assert admitted(access, second)
    assert value("acpc_access_stale") == 1
    keys.write_text(kept)
    wait_until(lambda: value("acpc_access_stale") == 0)


def test_guesses_cannot_fill_the_log(keys: Path) -> None:
    create_key(keys, "ci", Role.READ)
    metrics = Metrics()
    access = AccessControl(metrics, keys_file=keys)
    with structlog.testing.capture_logs() as lines:
        for number in range(1000):
            assert not admitted(access, f"acpc_{number:012x}_{'0' * 64}")
    assert 1 <= len(lines) < 100
    assert {line["event"] for line in lines} == {"denied"}
    counted = metrics.registry.get_sample_value(
        "acpc_access_denied_total", {"reason": "BAD_CREDENTIALS"}
    )
    assert counted == 1000


@pytest.mark.parametrize("year", [2049, 2050, 2070])
def test_the_end_of_the_certificate_is_told(tmp_path: Path, year: int) -> None:
    """From 2050 on certificates write the year with four digits."""
    until = datetime(year, 1, 2, 3, 4, 5, tzinfo=UTC)
    certificate, key = ROOT.issue("localhost", until=until).write(tmp_path, "server")
    metrics = Metrics()
    AccessControl(metrics, tls=TlsFiles(certificate, key))
    told = metrics.registry.get_sample_value(
        "acpc_certificate_expiry_timestamp_seconds", {"certificate": "server"}
    )
    assert told == until.timestamp()
