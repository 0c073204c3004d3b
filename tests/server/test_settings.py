"""Every setting is a flag and a variable, and a bad value is told in one line."""

import functools
import os
import typing
from pathlib import Path

import pytest
import typer
from acpc_server.cli import app
from acpc_server.errors import FailedPrecondition
from acpc_server.serve_flags import with_settings
from acpc_server.settings import Settings
from pydantic.fields import FieldInfo
from sqlalchemy.engine import make_url
from typer.testing import CliRunner

pytestmark = pytest.mark.edge

FIELDS = sorted(Settings.model_fields)
FOLDERS = ("checkpoint_root", "dataset_root", "state_dir", "anchor_dir")
FILES = ("tls_certificate", "tls_key", "tls_client_ca", "keys_file")
PATHS = {*FOLDERS, *FILES}
CHOSEN = {
    "device": "cpu",
    "jobs_url": "sqlite:////elsewhere/jobs.sqlite",
    "host": "0.0.0.0",  # noqa: S104
}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("ACPC_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("settings")
    for name in (*FOLDERS, "other"):
        (root / name).mkdir()
    for name in (*FILES, "file"):
        (root / name).write_text("PEM")
    return root


@pytest.fixture
def needed(root: Path) -> dict[str, str]:
    """Settings without which none can be made, and the TLS files, of which one needs the other."""
    return {name: str(root / name) for name in PATHS}


def other_value(name: str, field: FieldInfo, root: Path) -> object:
    if name in PATHS:
        return root / ("file" if name in FILES else "other")
    if name in CHOSEN:
        return CHOSEN[name]
    if typing.get_origin(field.annotation) is typing.Literal:
        return next(v for v in typing.get_args(field.annotation) if v != field.default)
    others = {
        bool: lambda usual: not usual,
        int: lambda usual: usual + 1,
        float: lambda usual: usual / 2 or 0.5,
        str: lambda _: "other",
    }
    assert field.annotation in others, f"say here how to choose a value for {name}"
    return others[field.annotation](field.default)


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def flags(values: dict[str, str]) -> list[str]:
    """Arguments that give every value; a switch is --name or --no-name."""
    given: list[str] = []
    for name, value in values.items():
        if name in FIELDS and Settings.model_fields[name].annotation is bool:
            given.append(flag(name) if value == "True" else flag(f"no_{name}"))
        else:
            given += [flag(name), value]
    return given


def parse(values: dict[str, str]) -> Settings:
    """What ``serve`` is given with these flags."""
    parsed: list[Settings] = []
    shell = typer.Typer(pretty_exceptions_enable=False)
    shell.command()(with_settings(parsed.append))
    CliRunner().invoke(shell, flags(values), catch_exceptions=False)
    return parsed.pop()


@functools.cache
def shown_help() -> str:
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    return shown.stdout


@pytest.mark.parametrize("name", FIELDS)
def test_a_setting_is_a_flag_and_a_variable_and_the_flag_wins(
    name: str, needed: dict[str, str], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    field = Settings.model_fields[name]
    wanted = other_value(name, field, root)
    usual = getattr(Settings(**needed), name)
    assert wanted != usual
    text = str(wanted)
    if name == "share_port":
        monkeypatch.setenv("ACPC_JOBS_URL", "postgresql://host/jobs")
    if name in (unset := ("jobs_url",)):
        assert getattr(parse({**needed, name: text}), name) == wanted
    monkeypatch.setenv(f"ACPC_{name.upper()}", text)
    assert getattr(parse({k: v for k, v in needed.items() if k != name}), name) == wanted
    if name not in unset:  # whose default is nothing
        assert getattr(parse({**needed, name: str(usual)}), name) == usual


def test_help_lists_every_setting_with_what_it_means() -> None:
    words = " ".join(shown_help().replace("│", " ").split())
    for name, field in Settings.model_fields.items():
        assert flag(name) in words
        assert (field.description or "?") in words, name


BAD = {
    **dict.fromkeys(("checkpoint_root", "dataset_root"), "/no/such/folder"),
    **dict.fromkeys(("tls_key", "tls_certificate", "tls_client_ca"), "/no/such/file"),
    "max_message_mib": "0",
    "anchor_store_mib": "many",
    "anchor_keep_days": "-1",
    "drain_seconds": "nan",
    "port": "65536",
    "metrics_port": "-2",
    "device": "tpu",
    "checkpoint_budget_mib": "1.5",
    "job_concurrency": "65",
    "job_lease_seconds": "0",
    "job_retention_days": "-1",
    "jobs_url": "mysql://somewhere",
    "log_level": "LOUD",
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("way", ["flag", "variable"])
def test_a_bad_value_is_one_line_that_names_flag_and_variable(
    name: str, way: str, needed: dict[str, str]
) -> None:
    given, variables = {k: v for k, v in needed.items() if k != name}, {}
    (given if way == "flag" else variables).update({name: BAD[name]})
    named = {f"ACPC_{key.upper()}": value for key, value in variables.items()}
    refused = CliRunner().invoke(app, ["serve", *flags(given)], env=named)
    assert refused.exit_code == 2, refused.output
    lines = refused.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"{flag(name)} (ACPC_{name.upper()}): ")
    assert refused.stdout == ""


SHARED = {"share_port": "True", "jobs_url": "postgresql://h/d", "anchor_dir": None}
UNSERVED: list[tuple[dict[str, str | None], str]] = [
    ({"share_port": "True"}, "--share-port (ACPC_SHARE_PORT): give all one"),
    (SHARED, "--anchor-dir (ACPC_ANCHOR_DIR): give all that share the port one, or"),
    *(
        ({name: "inf"}, f"{name.upper()}): Input should be less than or equal to")
        for name in ("job_lease_seconds", "job_retention_days", "anchor_keep_days")
    ),
    *(({name: None}, "TLS needs both") for name in ("tls_certificate", "tls_key")),
    *(({name: "3"}, flag(name)) for name in ("job_concurency", "max_queue")),  # one that went
    *(
        ({"jobs_url": url}, "--jobs-url (ACPC_JOBS_URL): ")
        for url in ("jobs.sqlite", "postgresql://user@host:port/jobs", "postgres://h/d")
    ),
    ({"checkpoint_root": "\udcff"}, r"(ACPC_CHECKPOINT_ROOT): \udcff is not a folder"),
    ({"dataset_root": "x" * 9999}, "x is not a folder"),
    ({"tls_key": "x" * 9999}, "x is not a file"),
    ({"host": "unix:/" + 107 * "a"}, "at most 107 bytes"),
    ({"host": "\udcff"}, r"--host (ACPC_HOST): found '\udcff'"),
    ({"metrics_host": "a..b"}, "(ACPC_METRICS_HOST): found 'a..b', wanted the name or"),
]


@pytest.mark.parametrize(("changed", "why"), UNSERVED)
def test_what_cannot_be_served_is_refused(
    changed: dict[str, str | None], why: str, needed: dict[str, str]
) -> None:
    given = {name: value for name, value in {**needed, **changed}.items() if value is not None}
    refused = CliRunner().invoke(app, ["serve", *flags(given)])
    assert refused.exit_code == 2
    assert why in refused.stderr


def test_all_bad_values_are_told_at_once() -> None:
    refused = CliRunner().invoke(app, ["serve", "--port", "x", "--job-concurrency", "0"])
    assert refused.exit_code == 2
    named = [line.split(" ")[0] for line in refused.stderr.splitlines()]
    assert sorted(named) == ["--checkpoint-root", "--dataset-root", "--job-concurrency", "--port"]


def test_jobs_and_anchors_are_in_the_state_folder_unless_told_otherwise(
    needed: dict[str, str], root: Path
) -> None:
    for name in ("100%41", "a#é", "a@b:c", "\udcff", "what?x=1"):
        try:
            odd = parse({**needed, "state_dir": str(root / name)}).database_url
        except FailedPrecondition as error:  # of the last one before SQLAlchemy 2.1
            assert name in ("\udcff", "what?x=1")
            assert error.message.endswith("; choose another --state-dir")
        else:
            assert make_url(odd).database == f"{root / name}/jobs.sqlite"
    inside = parse(needed).database_url
    assert inside == f"sqlite:///{root / 'state_dir' / 'jobs.sqlite'}"
    assert parse(needed).anchor_folder == root / "anchor_dir"
    bare = {name: value for name, value in needed.items() if name != "anchor_dir"}
    assert parse(bare).anchor_folder == root / "state_dir" / "anchors"
    url = "postgresql://me@host/jobs"
    assert parse({**needed, "jobs_url": url}).database_url == url
