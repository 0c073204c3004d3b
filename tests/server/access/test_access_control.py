"""Who is admitted by which credentials, files of keys, and the role of every method."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
import structlog
from acpc_server.access import (
    CHANGES,
    METHOD_ROLES,
    AccessControl,
    Role,
    TlsFiles,
    create_key,
    is_local,
    needed_role,
    read_keys,
    read_secret,
    require_guarded,
    revoke_key,
)
from acpc_server.errors import FailedPrecondition, Unauthenticated
from acpc_server.observe import Metrics
from acpc_server.rpc import reflection_versions
from credentials import Authority
from methods import METHODS as OURS
from methods import methods_of

GET = "/google.longrunning.Operations/GetOperation"
ROOT = Authority()


def bearer(text: str) -> list[tuple[str, str | bytes]]:
    return [("user-agent", "test"), ("authorization", f"Bearer {text}")]


def refusal(access: AccessControl, text: str) -> Unauthenticated:
    with pytest.raises(Unauthenticated) as caught:
        access.identify(GET, bearer(text), {})
    return caught.value


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def tls(tmp_path: Path) -> TlsFiles:
    certificate, key = ROOT.issue("localhost").write(tmp_path, "server")
    ca = tmp_path / "ca.pem"
    ca.write_bytes(ROOT.pem)
    return TlsFiles(certificate, key, ca)


def test_an_unknown_key_and_a_wrong_secret_are_answered_alike(keys: Path) -> None:
    text = create_key(keys, "ci", Role.READ)
    access = AccessControl(Metrics(), keys_file=keys)
    wrong = (text[:-1] + "x", f"acpc_{'0' * 12}_{text[-64:]}", text[:-64] + "0" * 64)
    assert len({refusal(access, one).message for one in wrong}) == 1


def test_an_expired_key(keys: Path) -> None:
    text = create_key(keys, "ci", Role.ADMIN, datetime(2020, 1, 1, tzinfo=UTC))
    access = AccessControl(Metrics(), keys_file=keys)
    assert refusal(access, text).reason == "EXPIRED_CREDENTIALS"


def test_a_key_counts_before_a_certificate(keys: Path, tls: TlsFiles) -> None:
    text = create_key(keys, "ci", Role.READ)
    access = AccessControl(Metrics(), tls=tls, keys_file=keys)
    connection = {"x509_common_name": [b"planner"]}
    assert access.identify(GET, bearer(text), connection).name == "ci"
    with pytest.raises(Unauthenticated):
        access.identify(GET, bearer("acpc_x"), connection)


@pytest.mark.parametrize("name", ["a\nb", "x" * 300, "spiffe://d/planner"])
def test_a_common_name_that_cannot_be_a_callers(tls: TlsFiles, name: str) -> None:
    """The last one is what an authority checks as an id of a workload, not as a common name."""
    access = AccessControl(Metrics(), tls=tls)
    with pytest.raises(Unauthenticated, match="cannot be a caller's"):
        access.identify(GET, [], {"x509_common_name": [name.encode()]})


def admitted(access: AccessControl, text: str) -> bool:
    try:
        access.identify(GET, bearer(text), {})
    except Unauthenticated:
        return False
    return True


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


def make(keys: Path, name: str = "ci") -> str:
    return create_key(keys, name, Role.READ)


def test_a_key_is_found_by_its_whole_text_only(keys: Path) -> None:
    text = create_key(keys, "ci", Role.COMPUTE, datetime(2030, 1, 1, tzinfo=UTC))
    other = make(keys, "planner")
    ring = read_keys(keys)
    found = ring.find(text)
    assert (found.name, found.role) == ("ci", "compute")
    identity, secret = text.removeprefix("acpc_").split("_")
    other_identity, other_secret = other.removeprefix("acpc_").split("_")
    wrong = [
        f"acpc_{identity}_{other_secret}",
        f"acpc_{other_identity}_{secret}",
        f"acpc_{'0' * 12}_{secret}",
        f"acpc_{identity}_{secret[:-1]}",
        f"acpc_{identity}_{'0' * 64}",
        f"acpc_{'0' * 12}_{'0' * 64}",
        text + "\n",
        text.upper(),
        f"acpc_{identity}_{found.sha256}",
        "acpc_",
    ]
    assert [ring.find(attempt) for attempt in wrong] == [None] * len(wrong)


def test_the_file_has_no_secret_and_is_its_owners_alone(keys: Path) -> None:
    secret = make(keys).rpartition("_")[2]
    make(keys, "planner")
    assert secret not in keys.read_text()
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert list(keys.parent.iterdir()) == [keys]


def test_keys_made_at_the_same_time_are_all_kept(keys: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda i: make(keys, f"p{i}"), range(40)))
    ring = read_keys(keys)
    assert all(ring.find(text) for text in made)
    assert len(ring.keys) == 40


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "JSON"),
        ('{"version": 1, "keys": []}', "version: "),
        ('{"keys": [{"id": "x"}]}', "keys.0.id"),
        ('{"kyes": []}', "kyes"),
        ('{"certificates": {"a": "root"}}', "certificates.a"),
    ],
)
def test_a_damaged_file_names_the_place(keys: Path, content: str, named: str) -> None:
    keys.touch(mode=0o600)
    keys.write_text(content)
    with pytest.raises(FailedPrecondition, match=named) as caught:
        read_keys(keys)
    assert str(keys) in caught.value.message


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o602, 0o620, 0o660, 0o601])
def test_a_secret_that_others_can_reach_is_rejected(keys: Path, mode: int) -> None:
    keys = keys.with_name("server key.pem")
    keys.write_text("hunter2")
    keys.chmod(mode)
    with pytest.raises(FailedPrecondition, match="chmod 600 '") as caught:
        read_secret(keys)
    assert "hunter2" not in caught.value.message
    keys.chmod(0o400)
    assert read_secret(keys) == b"hunter2"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_may_hand_a_secret_to_a_group(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.write_text("secret")
    monkeypatch.setattr(os, "geteuid", lambda: 10001)
    for mode, owner in ((0o440, 0), (0o444, 0), (0o460, 0), (0o440, 10001)):
        os.chown(keys, owner, owner)
        keys.chmod(mode)
        if (mode, owner) == (0o440, 0):
            assert read_secret(keys) == b"secret"
            continue
        with pytest.raises(FailedPrecondition):
            read_secret(keys)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_revokes_the_server_can_still_read(keys: Path) -> None:
    first = make(keys)
    os.chown(keys, 10001, 10002)
    revoke_key(keys, first.split("_")[1])
    found = keys.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (10001, 10002, 0o600)


DESCRIPTORS = {**OURS, **methods_of(*reflection_versions())}
METHODS = sorted(DESCRIPTORS)


def test_every_method_has_a_role_of_its_own() -> None:
    assert sorted(METHOD_ROLES) == METHODS, "say in access/roles.py who may call it"
    assert all(needed_role(method) is METHOD_ROLES[method] for method in METHODS)


def test_a_method_that_nobody_thought_of_is_for_administrators() -> None:
    assert needed_role("/acpc.v1.NewService/New") is Role.ADMIN
    assert needed_role("/grpc.health.v1.HealthEvil/Check") is Role.ADMIN


def test_every_change_is_one_of_the_methods_and_names_its_subject() -> None:
    assert set(METHODS) >= CHANGES.keys()
    for method, field in CHANGES.items():
        assert field in DESCRIPTORS[method].input_type.fields_by_name
    kinds = {method: role for method, role in METHOD_ROLES.items() if role is Role.ADMIN}
    assert kinds.keys() <= CHANGES.keys()


LOCAL = ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "::ffff:127.0.0.1", "unix:/run/a"]
OPEN = ["::", "[::]", "10.0.0.7", "192.168.1.2", "fe80::1%eth0", "no-such-name.invalid", ""]
OPEN += ["0.0.0.0", "::ffff:10.0.0.7", "1"]  # noqa: S104


@pytest.mark.parametrize("host", LOCAL)
def test_this_machine_alone(host: str) -> None:
    assert is_local(host)
    require_guarded(host, authenticated=False, encrypted=False, insecure=False)


@pytest.mark.parametrize("host", OPEN)
def test_reachable_from_elsewhere(host: str) -> None:
    assert not is_local(host)
    with pytest.raises(FailedPrecondition) as caught:
        require_guarded(host, authenticated=False, encrypted=True, insecure=False)
    for way in ("--host 127.0.0.1", "--keys-file", "--insecure"):
        assert way in caught.value.message
    with pytest.raises(FailedPrecondition, match="in the clear"):
        require_guarded(host, authenticated=True, encrypted=False, insecure=False)
    require_guarded(host, authenticated=True, encrypted=True, insecure=False)
    require_guarded(host, authenticated=False, encrypted=False, insecure=True)
