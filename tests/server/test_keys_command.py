"""acpc-server keys: what it prints, and where."""

import json
import re
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
    made = run("create", "--name", "ci", "--role", "compute", "--days", 30, "--file", path)
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
    assert "compute" in line
    assert key[-64:] not in listed.stdout

    (record,) = json.loads(run("list", "--file", path, "-o", "json").stdout)
    assert record == {
        "id": found.id, "name": "ci", "role": "compute",
        "created": found.created.isoformat(), "expires": found.expires.isoformat(),
    }  # fmt: skip
    assert run("revoke", found.id, "--file", path).exit_code == 0
    assert read_keys(path).find(key) is None
    assert isinstance(run("revoke", found.id, "--file", path).exception, NotFound)


def test_a_role_of_a_certificate(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    name = "spiffe://d/ops"
    assert run("certificate", "--name", name, "--role", "admin", "--file", path).exit_code == 0
    assert read_keys(path).certificates == {name: "admin"}


def test_a_name_that_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    for command in ("create", "certificate"):
        made = run(command, "--name", "a b", "--role", "read", "--file", path)
        assert isinstance(made.exception, FailedPrecondition)
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


def test_a_role_that_is_none(tmp_path: Path) -> None:
    wrong = run("create", "--name", "a", "--role", "root", "--file", tmp_path / "keys.json")
    assert wrong.exit_code == 2
    assert "'root' is not one of 'read', 'compute', 'admin'" in wrong.stderr
    assert "Value error" not in wrong.stderr
