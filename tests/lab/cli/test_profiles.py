"""Connections: what ``acpc config`` keeps, and which of option, variable, profile and file wins."""

import json
import stat
from pathlib import Path

import pytest
from acpc_command import Acpc, acpc_command


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder of the tests' own."""
    for name in ("ACPC_TARGET", "ACPC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return Path("acpc") / "config.toml"


@pytest.fixture
def acpc() -> Acpc:
    return acpc_command()


def test_profiles_are_kept_shown_used_and_deleted(home: Path, acpc: Acpc, target: str) -> None:
    key = Path("planner.key").resolve()
    key.write_text("acpc_1_secret\n")
    acpc(
        "config", "set", "target=elsewhere:1", f"token_file={key}", "timeout=5", "--profile", "far"
    )
    acpc("config", "set", f"target={target}", "--profile", "near")
    assert stat.S_IMODE(home.stat().st_mode) == 0o600
    listed = json.loads(acpc("config", "list", "-o", "json").stdout)
    assert listed == [
        {"profile": "far", "target": "elsewhere:1", "token_file": str(key), "timeout": 5.0},
        {"profile": "near", "target": target},
    ]
    acpc("config", "use", "near")
    assert "one" in acpc("list", "checkpoints").stdout
    acpc("config", "unset", "timeout", "--profile", "far")
    acpc("config", "delete", "near")
    assert [one["profile"] for one in json.loads(acpc("config", "-o", "json").stdout)] == ["far"]
    assert "timeout" not in home.read_text()


def test_what_is_named_nearer_wins(home: Path, acpc: Acpc, target: str, unused_target: str) -> None:
    acpc("config", "set", f"target={unused_target}", "--profile", "away")
    acpc("config", "set", f"target={target}", "--profile", "here")
    acpc("config", "use", "away")
    asked = ("list", "checkpoints")
    assert f"no server answers at {unused_target}" in acpc(*asked, code=1).stderr
    acpc(*asked, "--profile", "here")
    acpc(*asked, ACPC_PROFILE="here")
    acpc(*asked, ACPC_TARGET=target)
    acpc(*asked, "--target", target)
    acpc(*asked, "--profile", "here", "--target", unused_target, code=1)


def test_a_target_named_another_way_gets_no_credentials_of_the_profile(
    home: Path, acpc: Acpc, target: str
) -> None:
    key = Path("planner.key").resolve()
    key.write_text("acpc_1_secret\n")
    acpc("config", "set", "target=elsewhere:1", f"token_file={key}", "tls_name=elsewhere")
    acpc("list", "checkpoints", "--target", target)  # TLS would fail here


def test_a_profile_that_is_not_there_or_a_file_that_is_none_is_one_line(
    home: Path, acpc: Acpc
) -> None:
    acpc("config", "set", "target=a:1", "--profile", "lab")
    answer = acpc("list", "checkpoints", "--profile", "lap", code=1)
    assert "there is no profile 'lap'; did you mean 'lab'?" in answer.stderr
    home.write_text("profiles = 3")
    assert "cannot be read as profiles" in acpc("list", "checkpoints", code=1).stderr
