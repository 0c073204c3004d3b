"""API keys in their file, and which files are too exposed to be used."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from acpc_server.access import (
    Role,
    create_key,
    read_keys,
    read_secret,
    revoke_key,
)
from acpc_server.errors import FailedPrecondition, NotFound


def make(path: Path, name: str = "ci") -> str:
    return create_key(path, name, Role.READ)


def test_a_key_is_found_by_its_whole_text_only(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    text = create_key(path, "ci", Role.COMPUTE, datetime(2030, 1, 1, tzinfo=UTC))
    other = make(path, "planner")
    ring = read_keys(path)
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


def test_the_file_has_no_secret_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    secret = make(path).rpartition("_")[2]
    make(path, "planner")
    assert secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_revoked_key_is_gone_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first, second = make(path), make(path, "planner")
    gone = revoke_key(path, first.split("_")[1])
    assert gone.name == "ci"
    ring = read_keys(path)
    assert ring.find(first) is None
    assert ring.find(second) is not None
    with pytest.raises(NotFound, match="keys list"):
        revoke_key(path, gone.id)


def test_keys_made_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda i: make(path, f"p{i}"), range(40)))
    ring = read_keys(path)
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
def test_a_damaged_file_names_the_place(tmp_path: Path, content: str, named: str) -> None:
    path = tmp_path / "keys.json"
    path.touch(mode=0o600)
    path.write_text(content)
    with pytest.raises(FailedPrecondition, match=named) as caught:
        read_keys(path)
    assert str(path) in caught.value.message


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o602, 0o620, 0o660, 0o601])
def test_a_secret_that_others_can_reach_is_rejected(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "server key.pem"
    path.write_text("hunter2")
    path.chmod(mode)
    with pytest.raises(FailedPrecondition, match="chmod 600 '") as caught:
        read_secret(path)
    assert "hunter2" not in caught.value.message
    path.chmod(0o400)
    assert read_secret(path) == b"hunter2"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_may_hand_a_secret_to_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kubernetes does with fsGroup: owner root, the group may read, nobody else."""
    path = tmp_path / "key.pem"
    path.write_text("secret")
    monkeypatch.setattr(os, "geteuid", lambda: 10001)
    path.chmod(0o440)
    assert read_secret(path) == b"secret"
    for mode in (0o444, 0o460):
        path.chmod(mode)
        with pytest.raises(FailedPrecondition):
            read_secret(path)
    path.chmod(0o440)
    os.chown(path, 10001, 10001)
    with pytest.raises(FailedPrecondition):
        read_secret(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_revokes_the_server_can_still_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first = make(path)
    os.chown(path, 10001, 10002)
    revoke_key(path, first.split("_")[1])
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (10001, 10002, 0o600)
