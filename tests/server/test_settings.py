"""Every setting is a flag and a variable, and a bad value is told in one line."""

import functools
import os
import typing
from pathlib import Path
from typing import Any

import pytest
import typer
from acpc_server.cli import app
from acpc_server.errors import FailedPrecondition
from acpc_server.serve_flags import in_force, with_settings
from acpc_server.settings import Settings, read_settings
from pydantic.fields import FieldInfo
from sqlalchemy.engine import make_url
from typer.testing import CliRunner

pytestmark = pytest.mark.edge

FIELDS = sorted(Settings.model_fields)
FOLDERS = ("checkpoint_root", "dataset_root", "state_dir", "anchor_dir")
FILES = (
    *("tls_certificate", "tls_key", "tls_client_ca", "keys_file"),
    "metrics_token_file",
)
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
    """A good value that is not the default."""
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
        if Settings.model_fields[name].annotation is bool:
            given.append(flag(name) if value == "True" else flag(f"no_{name}"))
        else:
            given += [flag(name), value]
    return given


def parse(values: dict[str, str], *more: str) -> Settings:
    """What ``serve`` is given with these flags."""
    CliRunner().invoke(SHELL, [*flags(values), *more], catch_exceptions=False)
    return PARSED.pop()


PARSED: list[Settings] = []
SHELL = typer.Typer(pretty_exceptions_enable=False)


@SHELL.command()
@with_settings
def serve(given: dict[str, Any], config: Path | None, print_config: bool) -> None:
    assert not print_config
    PARSED.append(read_settings(given, config))


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
    if name in (unset := ("jobs_url", "executor_id")):
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


def test_what_is_in_force_is_printed_with_where_it_comes_from(
    needed: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As TOML that means the same, but for secrets; a flag is named where it wins."""
    file = tmp_path / "acpc.toml"
    file.write_text("max_queue = 7\nport = 1\n")
    monkeypatch.setenv("ACPC_PORT", "2")
    monkeypatch.setenv("acpc_jobs_url", "postgresql://me:s@cret@h/d?sslpassword=cret&x=1")
    given = {name: needed[name] for name in ("checkpoint_root", "dataset_root")}
    arguments = [*flags(given), "--config", str(file), "--print-config"]
    shown = CliRunner().invoke(app, ["serve", *arguments])
    assert shown.exit_code == 0
    assert "cret" not in shown.stdout
    lines = shown.stdout.splitlines()
    for line in (
        f'checkpoint_root = "{needed["checkpoint_root"]}"  # flag --checkpoint-root',
        "port = 2  # environment ACPC_PORT",
        f"max_queue = 7  # file {file}",
        'jobs_url = "postgresql://***@h/d?sslpassword=***&x=1"  # environment ACPC_JOBS_URL',
        "merge_requests = true  # default",
        "# tls_key: not set",
    ):
        assert line in lines
    for name in ("ACPC_PORT", "acpc_jobs_url"):
        monkeypatch.delenv(name)
    file.write_text(shown.stdout)
    again = CliRunner().invoke(app, ["serve", "--config", str(file), "--print-config"])
    assert [line.partition("  #")[0] for line in again.stdout.splitlines()] == [
        line.partition("  #")[0] for line in lines
    ]


BAD = {
    **dict.fromkeys(("checkpoint_root", "dataset_root"), "/no/such/folder"),
    **dict.fromkeys(("tls_key", "tls_certificate", "tls_client_ca"), "/no/such/file"),
    **dict.fromkeys(("max_message_mib", "max_frames", "max_predictions"), "0"),
    "anchor_store_mib": "0",
    **dict.fromkeys(("max_calls_per_caller", "anchor_keep_days"), "-1"),
    "torch_threads": "4097",
    "drain_seconds": "nan",
    "port": "65536",
    "metrics_port": "-2",
    "device": "tpu",
    "max_queue": "many",
    "checkpoint_budget_mib": "1.5",
    "job_concurrency": "65",
    "executor_id": "two words",
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


@pytest.mark.parametrize(
    ("changed", "more", "why"),
    [
        ({"share_port": "True"}, [], "--share-port (ACPC_SHARE_PORT): give all one"),
        (
            {"share_port": "True", "jobs_url": "postgresql://h/d", "anchor_dir": None},
            [],
            "--anchor-dir (ACPC_ANCHOR_DIR): give all that share the port one, or",
        ),
        *(
            ({name: "inf"}, [], f"{name.upper()}): Input should be less than or equal to")
            for name in ("job_lease_seconds", "job_retention_days", "anchor_keep_days")
        ),
        ({"tls_certificate": None}, [], "TLS needs both"),
        ({"tls_key": None}, [], "TLS needs both"),
        ({}, ["--max-qeue", "3"], "--max-qeue"),
        ({"jobs_url": "jobs.sqlite"}, [], "--jobs-url (ACPC_JOBS_URL): "),
        ({"jobs_url": "postgresql://user@host:port/jobs"}, [], "--jobs-url (ACPC_JOBS_URL): "),
        ({"jobs_url": "postgres://h/d"}, [], "--jobs-url (ACPC_JOBS_URL): "),
        ({}, ["--config", "no/such.toml"], "does not exist"),
        ({"checkpoint_root": "\udcff"}, [], r"(ACPC_CHECKPOINT_ROOT): \udcff is not a folder"),
        ({"dataset_root": "x" * 9999}, [], "x is not a folder"),
        ({"tls_key": "x" * 9999}, [], "x is not a file"),
        ({"host": "unix:/" + 107 * "a"}, [], "at most 107 bytes"),
        ({"host": "\udcff"}, [], r"--host (ACPC_HOST): found '\udcff'"),
        ({"metrics_host": "a..b"}, [], "(ACPC_METRICS_HOST): found 'a..b', wanted the name or"),
    ],
)
def test_what_cannot_be_served_is_refused(
    changed: dict[str, str | None], more: list[str], why: str, needed: dict[str, str]
) -> None:
    given = {name: value for name, value in {**needed, **changed}.items() if value is not None}
    refused = CliRunner().invoke(app, ["serve", *flags(given), *more])
    assert refused.exit_code == 2
    assert why in refused.stderr


def test_all_bad_values_are_told_at_once() -> None:
    refused = CliRunner().invoke(app, ["serve", "--port", "x", "--max-queue", "0"])
    assert refused.exit_code == 2
    named = [line.split(" ")[0] for line in refused.stderr.splitlines()]
    assert sorted(named) == ["--checkpoint-root", "--dataset-root", "--max-queue", "--port"]


def test_jobs_and_anchors_are_in_the_state_folder_unless_told_otherwise(
    needed: dict[str, str], root: Path
) -> None:
    for name in ("100%41", "a#é", "a@b:c"):
        odd = parse({**needed, "state_dir": str(root / name)}).database_url
        assert make_url(odd).database == f"{root / name}/jobs.sqlite"
    for name in ("\udcff", "what?x=1"):
        try:
            odd = parse({**needed, "state_dir": str(root / name)}).database_url
        except FailedPrecondition as error:  # of the latter before SQLAlchemy 2.1
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


@pytest.fixture
def config(needed: dict[str, str], tmp_path: Path) -> Path:
    """A file that gives every path, a port and a level."""
    lines = [f'{name} = "{value}"' for name, value in needed.items()]
    path = tmp_path / "acpc.toml"
    path.write_text("\n".join([*lines, "port = 1", "max_queue = 2", 'log_level = "ERROR"']))
    return path


def test_flags_win_over_variables_and_variables_over_the_file(
    config: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--config", str(config)]
    read = parse({}, *given)
    assert read.checkpoint_root == root / "checkpoint_root"
    assert (read.port, read.max_queue, read.log_level) == (1, 2, "ERROR")
    monkeypatch.setenv("ACPC_PORT", "7")
    assert (parse({}, *given).port, parse({}, *given).max_queue) == (7, 2)
    assert parse({"port": "9"}, *given).port == 9
    monkeypatch.setenv("ACPC_CONFIG", str(config))
    assert parse({}).max_queue == 2


def test_a_file_may_begin_with_a_byte_order_mark(config: Path) -> None:
    config.write_text(config.read_text(), encoding="utf-8-sig")
    read = parse({}, "--config", str(config))
    assert read.max_queue == 2
    assert f"max_queue = 2  # file {config}" in in_force(read, {}, config)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("max_qeue = 3", "there is no setting 'max_qeue'; did you mean 'max_queue'"),
        ("max-queue = 3", "did you mean 'max_queue'"),
        ("[jobs]\nx = 3", "there is no setting 'jobs'"),
        ("zzz = 3", "there is no setting 'zzz'; acpc-server serve --help lists all"),
        ("port =", "acpc.toml: not TOML"),
        ("port = " + "[" * 50_000, "acpc.toml: not TOML"),
        ("\udcff\udcfe", "acpc.toml: not TOML"),  # two bytes that are no text
        ("max_frames = 0", "acpc.toml: max_frames: Input should be greater than or equal to"),
    ],
)
def test_a_wrong_file_is_one_line(line: str, told: str, config: Path) -> None:
    config.write_text(f"{config.read_text()}\n{line}", errors="surrogateescape")
    refused = CliRunner().invoke(app, ["serve", "--config", str(config)])
    assert refused.exit_code == 2
    (only,) = refused.stderr.splitlines()
    assert told in only


def test_what_wins_over_the_file_is_named_instead_of_it(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(config.read_text().replace("port = 1", "port = -2"))

    def told(*more: str) -> str:
        return CliRunner().invoke(app, ["serve", "--config", str(config), *more]).stderr

    assert told().startswith(f"{config}: port: Input should be")
    assert told("--port", "x").startswith("--port (ACPC_PORT): Input should be")
    monkeypatch.setenv("ACPC_PORT", "x")
    assert told().startswith("--port (ACPC_PORT): Input should be")


def test_a_guard_of_an_earlier_release_is_not_dropped_in_silence(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACPC_TLS_CRL", "revoked.pem")
    refused = CliRunner().invoke(app, ["serve", "--config", str(config)])
    assert refused.exit_code == 2
    assert "ACPC_TLS_CRL guards nothing any more: use client certificates" in refused.stderr
