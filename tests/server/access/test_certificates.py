"""Client certificates and revocation lists."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from acpc_server.access.certificates import (
    CertificateNames,
    PeerCertificates,
    Revocations,
    read_authorities,
    read_revocations,
)
from acpc_server.errors import FailedPrecondition, Unauthenticated
from credentials import DAY, Authority

ROOT = Authority()


@pytest.fixture
def authorities(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    path.write_bytes(ROOT.pem)
    return path


def write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "crl.pem"
    path.write_bytes(data)
    return path


def test_names_of_a_certificate() -> None:
    found = CertificateNames.of(
        ROOT.issue("planner", spiffe="spiffe://d/p", dns=("p.d",)).certificate
    )
    assert (found.spiffe, found.dns, found.common_name) == ("spiffe://d/p", ("p.d",), "planner")


@pytest.mark.parametrize(
    "uris",
    [
        *(("spiffe://d/a", "spiffe://d/b"), ("https://d/a",), ("spiffe://d/fleet/7\nx",)),
        *(("spiffe://d/fleet/../p",), ("spiffe://d/fleet/",), ("spiffe://d/a b",)),
        *(("spiffe://d/fleet/7?x=1",), ("spiffe:///fleet/7",), ("spiffe://d/%2e%2e/p",)),
    ],
)
def test_one_uri_of_the_standard_s_form_makes_a_spiffe_id(uris: tuple[str, ...]) -> None:
    assert CertificateNames.of(ROOT.issue("x", spiffe=uris).certificate).spiffe == ""


def test_a_connection_without_a_certificate_names_nobody() -> None:
    assert PeerCertificates().names({}, None) is None


def test_a_certificate_that_expires_under_its_connection() -> None:
    now = datetime.now(UTC)
    client = ROOT.issue("x", until=now + DAY)
    clock = [now.timestamp()]
    peers = PeerCertificates(lambda: clock[0])
    assert peers.names(client.auth_context(), None) is not None
    clock[0] += 2 * DAY.total_seconds()
    with pytest.raises(Unauthenticated, match="expired") as caught:
        peers.names(client.auth_context(), None)
    assert caught.value.reason == "EXPIRED_CREDENTIALS"


def test_a_revoked_certificate(tmp_path: Path, authorities: Path) -> None:
    good, bad = ROOT.issue("good"), ROOT.issue("bad")
    found = read_revocations(write(tmp_path, ROOT.revoke(bad)), read_authorities(authorities))
    assert PeerCertificates().names(good.auth_context(), found) is not None
    with pytest.raises(Unauthenticated, match="revoked"):
        PeerCertificates().names(bad.auth_context(), found)


def test_a_certificate_of_an_authority_without_a_list(tmp_path: Path, authorities: Path) -> None:
    found = read_revocations(write(tmp_path, ROOT.revoke()), read_authorities(authorities))
    stranger = Authority("another").issue("x")
    with pytest.raises(Unauthenticated, match="no revocation list"):
        PeerCertificates().names(stranger.auth_context(), found)


def test_a_list_that_expires_while_the_server_runs(tmp_path: Path, authorities: Path) -> None:
    data = ROOT.revoke(until=timedelta(hours=1))
    found = read_revocations(write(tmp_path, data), read_authorities(authorities))
    client = ROOT.issue("x")
    later = (datetime.now(UTC) + timedelta(hours=2)).timestamp()
    with pytest.raises(Unauthenticated, match="whoever runs the server") as caught:
        PeerCertificates(lambda: later).names(client.auth_context(), found)
    assert caught.value.reason == "REVOCATION_LIST_EXPIRED"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (ROOT.revoke(until=-timedelta(minutes=1)), "expired at .* issue a new one"),
        (Authority().revoke(), "signed by no certificate of --tls-client-ca"),
        (Authority("another").revoke(), "CN=another is signed by no certificate"),
        (ROOT.revoke(critical=True), "delta or partial"),
        (ROOT.pem, "no PEM revocation list"),
        (b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----", "not a revocation list"),
    ],
)
def test_a_list_that_cannot_be_used(
    tmp_path: Path, authorities: Path, data: bytes, problem: str
) -> None:
    with pytest.raises(FailedPrecondition, match=problem):
        read_revocations(write(tmp_path, data), read_authorities(authorities))


def test_a_revocation_list_ends_at_the_very_moment_it_names() -> None:
    lists = Revocations(frozenset(), frozenset({b"authority"}), expires=9.0)
    lists.check((b"authority", 1), 8.9)
    with pytest.raises(Unauthenticated) as refused:
        lists.check((b"authority", 1), 9.0)
    assert refused.value.reason == "REVOCATION_LIST_EXPIRED"
