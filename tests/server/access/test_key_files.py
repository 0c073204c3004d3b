"""API keys in their file, and which files are too exposed to be used."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from acpc_server.access import Role, create_key, read_keys, read_secret, revoke_key, rotate_key
from acpc_server.access.files import read_public
from acpc_server.errors import FailedPrecondition, NotFound

READ = frozenset({Role.READ})


def make(path: Path, name: str = "ci") -> str:
    return create_key(path, principal=name, tenant="", roles=READ, expires=None)


def test_a_key_is_found_by_its_whole_text_only(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    text = create_key(
        path,
        principal="ci",
        tenant="lab",
        roles=frozenset({Role.READ, Role.SCORE}),
        expires=datetime(2030, 1, 1, tzinfo=UTC),
    )
    other = make(path, "planner")
    ring = read_keys(path)
    found = ring.find(text)
    assert (found.principal, found.tenant, found.roles) == ("ci", "lab", {"read", "score"})
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
    assert gone.principal == "ci"
    ring = read_keys(path)
    assert ring.find(first) is None
    assert ring.find(second) is not None
    with pytest.raises(NotFound, match="keys list"):
        revoke_key(path, gone.id)


def test_a_rotated_key_lasts_for_the_overlap(tmp_path: Path) -> None:
    path, now = tmp_path / "keys.json", datetime.now(UTC)
    lasting = make(path)
    ending = create_key(
        path, principal="b", tenant="t", roles=READ, expires=now + timedelta(days=30)
    )
    for text, overlap in ((lasting, timedelta(hours=2)), (ending, timedelta(days=60))):
        old, fresh = rotate_key(path, text.split("_")[1], overlap)
        ring = read_keys(path)
        was, made = ring.find(text), ring.find(fresh)
        assert was == old and made is not None and made.id != old.id
        assert (made.principal, made.tenant, made.roles) == (was.principal, was.tenant, was.roles)
        assert old.expires - now < min(overlap, timedelta(days=30)) + timedelta(minutes=1)
        assert (made.expires is None) is (text is lasting)
    assert len(read_keys(path).keys) == 4
    with pytest.raises(NotFound, match="keys list"):
        rotate_key(path, "0" * 12, timedelta())


def test_a_key_that_was_to_end_before_it_was_made_is_rotated_into_one_that_has_ended(
    tmp_path: Path,
) -> None:
    path = tmp_path / "keys.json"
    text = create_key(
        path, principal="ci", tenant="", roles=READ, expires=datetime(1, 1, 1, tzinfo=UTC)
    )
    written = json.loads(path.read_text())
    written["keys"][0]["created"] = "9999-12-31T00:00:00Z"
    path.write_text(json.dumps(written))
    _, fresh = rotate_key(path, text.split("_")[1], timedelta())
    made = read_keys(path).find(fresh)
    assert made.expires == made.created


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
        ('{"version": 2, "keys": []}', "version"),
        ('{"keys": [{"id": "x"}]}', "keys.0.id"),
        ('{"kyes": []}', "did you mean 'keys'"),
    ],
)
def test_a_damaged_file_names_the_place(tmp_path: Path, content: str, named: str) -> None:
    path = tmp_path / "keys.json"
    path.touch(mode=0o600)
    path.write_text(content)
    with pytest.raises(FailedPrecondition, match=named) as caught:
        read_keys(path)
    assert str(path) in caught.value.message


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match="acpc-server keys create"):
        read_keys(tmp_path / "keys.json")


def test_two_keys_of_one_id(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    make(path)
    content = json.loads(path.read_text())
    content["keys"] *= 2
    path.write_text(json.dumps(content))
    with pytest.raises(FailedPrecondition, match="one id"):
        read_keys(path)


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


def test_a_file_that_decides_access_and_anyone_can_change(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    path.write_text("principals: []")
    path.chmod(0o646)
    with pytest.raises(FailedPrecondition, match="chmod o-w"):
        read_public(path)


def test_a_link_to_the_file_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "keys.json", tmp_path / "keys.json"
    text = make(real)
    link.symlink_to(real)
    revoke_key(link, text.split("_")[1])
    assert link.is_symlink()
    assert read_keys(real).find(text) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_revokes_the_server_can_still_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first = make(path)
    os.chown(path, 10001, 10002)
    revoke_key(path, first.split("_")[1])
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (10001, 10002, 0o600)


def test_a_named_pipe_that_nobody_writes_is_empty(tmp_path: Path) -> None:
    """Whoever reads files again would else wait for ever, and revoke nothing any more."""
    path = tmp_path / "keys.json"
    os.mkfifo(path, 0o600)
    assert read_secret(path) == b""
    with pytest.raises(FailedPrecondition, match=r"keys\.json"):
        read_keys(path)


def test_a_pipe_is_read_to_its_end() -> None:
    """A shell's ``--keys-file <(decrypt keys)``, whose writer may come late."""
    reading, writing = os.pipe()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(read_secret, Path(f"/dev/fd/{reading}"))
        with os.fdopen(writing, "wb") as file:
            for part in (b"one ", b"two"):
                file.write(part)
                file.flush()
        assert found.result() == b"one two"
    os.close(reading)
