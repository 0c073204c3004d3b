"""acpc-server keys: what it prints, and where."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from acpc_server.access import read_keys
from acpc_server.cli import app
from acpc_server.errors import FailedPrecondition, NotFound
from typer.testing import CliRunner, Result


def run(*arguments: object, **variables: str) -> Result:
    return CliRunner().invoke(app, ["keys", *map(str, arguments)], env=variables)


def test_a_key_from_its_making_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    made = run("create", "--name", "ci", "--role", "read", "--role", "score", "--tenant", "lab",
               "--days", 30, "--file", path)  # fmt: skip
    assert made.exit_code == 0, made.output
    key = made.stdout.strip()
    assert re.fullmatch(r"acpc_[0-9a-f]{12}_[0-9a-f]{64}", key)
    assert key[-64:] not in made.stderr
    found = read_keys(path).find(key)
    assert (found.expires - found.created).days in (29, 30)

    listed = run("list", ACPC_KEYS_FILE=str(path))
    assert listed.exit_code == 0
    line = next(line for line in listed.stdout.splitlines() if found.id in line)
    assert "ci" in line
    assert "lab" in line
    assert "read, score" in line
    assert key[-64:] not in listed.stdout

    (tmp_path / "key-uses.json").write_text(json.dumps({found.id: 1e9}))
    assert "2001-09-09 01:46" in run("list", "--file", path, "--state-dir", tmp_path).stdout
    (record,) = json.loads(run("list", "--file", path, "-o", "json").stdout)
    assert record == {
        "id": found.id, "name": "ci", "tenant": "lab", "roles": ["read", "score"],
        "created": found.created.isoformat(), "last_used": None,
        "expires": found.expires.isoformat(),
    }  # fmt: skip
    rotated = run("rotate", found.id, "--file", path)
    assert f"key {found.id} counts until" in rotated.stderr
    assert read_keys(path).find(rotated.stdout.strip())
    assert run("revoke", found.id, "--file", path).exit_code == 0
    assert read_keys(path).find(key) is None
    assert isinstance(run("revoke", found.id, "--file", path).exception, NotFound)


@pytest.mark.parametrize(
    "arguments",
    [("--name", "a b", "--role", "read"), ("--name", "a", "--role", "read", "--tenant", "Lab")],
)
def test_a_name_that_cannot_be(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "keys.json"
    assert isinstance(run("create", *arguments, "--file", path).exception, FailedPrecondition)
    assert not path.exists()


def test_a_file_that_is_a_link_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.symlink_to(path)
    made = run("create", "--name", "a", "--role", "read", "--file", path)
    assert isinstance(made.exception, FailedPrecondition)


@pytest.mark.parametrize("time", ["nan", "inf", "3e6", "1e300"])
def test_a_time_beyond_every_date_is_wrong_usage(tmp_path: Path, time: str) -> None:
    key = ("--name", "a", "--role", "read", "--file", tmp_path / "keys.json")
    assert run("create", *key, "--days", time).exit_code == 2
    made = run("create", *key).stdout.split("_")[1]
    assert run("rotate", made, *key[-2:], "--overlap-hours", time).exit_code == 2


def test_a_key_until_the_last_date_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    made = run("create", "--name", "a", "--role", "read", "--days", 1, "--file", path)
    held = json.loads(path.read_text())
    held["keys"][0]["expires"] = "9999-12-31T23:59:59Z"
    path.write_text(json.dumps(held))
    rotated = run("rotate", made.stdout.split("_")[1], "--file", path)
    found = read_keys(path).find(rotated.stdout.strip())
    assert found is not None, rotated.output
    assert found.expires == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def test_a_role_that_is_none(tmp_path: Path) -> None:
    wrong = run("create", "--name", "a", "--role", "root", "--file", tmp_path / "keys.json")
    assert wrong.exit_code == 2
    assert "upload" in wrong.stderr
