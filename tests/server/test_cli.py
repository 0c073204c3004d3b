"""The command line as an operator meets it: exit codes, and one line for what is wrong."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import processes
import pytest
import torch
from acpc_server import __main__
from acpc_server.access import Role, create_key, read_keys
from acpc_server.cli import app, main
from acpc_server.errors import FailedPrecondition, NotFound
from acpc_server.models.loader import load_checkpoint
from credentials import Authority
from public_checkpoint import write_checkpoint
from typer.testing import CliRunner, Result
from waiting import GENEROUS_SECONDS

PROGRAM = str(Path(sys.executable).with_name("acpc-server"))
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The program's entry point with arguments; a process of its own would cost seconds."""

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [PROGRAM, *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as ended:
            main()
        return subprocess.CompletedProcess(
            command, int(ended.value.code or 0), *capsys.readouterr()
        )

    return call


@pytest.mark.process
def test_a_full_stdout_is_one_line(tmp_path: Path) -> None:
    """Of a version, of a help, and of what an import prints beside files that it reads."""
    run_folder = Path(__file__).parents[2] / "examples/two_room/paper_run"
    for asked in (["--version"], ["serve", "--help"], ["import", run_folder, tmp_path / "new"]):
        with (
            Path("/dev/full").open("w") as full,
            processes.running(
                [PROGRAM, *map(str, asked)], stdout=full, stderr=subprocess.PIPE, text=True
            ) as process,
        ):
            _, shown = process.communicate(timeout=GENEROUS_SECONDS)
        said = "FAILED_PRECONDITION: stdout: No space left on device\n"
        assert (process.returncode, shown) == (1, said), asked


@pytest.mark.parametrize("words", ["", "serve", "doctor", "health", "keys", "keys create"])
def test_help_has_two_spellings(words: str, run: Run) -> None:
    short, long = (run(*words.split(), flag) for flag in ("-h", "--help"))
    assert short.returncode == 0
    assert short.stdout == long.stdout != ""


def digest(folder: Path) -> str:
    return load_checkpoint(folder.parent, folder.name, device=torch.device("cpu")).card.digest


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "model")


def test_a_folder_is_named_letter_by_letter(run: Run, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "[red]a:boom:")
    assert "[red]a:boom:: the server" in " ".join(run("doctor", folder).stdout.split())


def test_an_accepted_checkpoint_is_shown_with_its_whole_digest(run: Run, checkpoint: Path) -> None:
    (checkpoint / "acpc.json").write_text('{"serving": {"batch_delay_seconds": 0.125}}')
    shown = run("doctor", checkpoint)
    assert shown.returncode == 0
    assert re.search(r"serving\.batch_delay_seconds\W+0\.125", shown.stdout)
    letters = "".join(c for c in shown.stdout if c.isalnum())
    card = load_checkpoint(checkpoint.parent, "model", device=torch.device("cpu")).card
    assert card.digest in letters.replace("imagesize", " ")
    assert "25,854" in shown.stdout


def test_a_refused_checkpoint_is_one_line_and_exit_code_1(run: Run, checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    config["predictor"]["_target_"] = "os.system"
    (checkpoint / "config.json").write_text(json.dumps(config))
    shown = run("doctor", checkpoint)
    assert shown.returncode == 1
    assert shown.stdout == ""
    (line,) = shown.stderr.splitlines()
    assert line.startswith("FAILED_PRECONDITION: ")
    assert "os.system" in line


@pytest.mark.parametrize("arguments", [["--max-mib", "0"], ["--weights", "other.pt"]])
def test_options_of_doctor_reach_the_loader(checkpoint: Path, arguments: list[str]) -> None:
    shown = CliRunner().invoke(app, ["doctor", str(checkpoint), *arguments])
    assert shown.exit_code == 1
    assert type(shown.exception).__name__ in ("UnsafeCheckpoint", "NotFound")


@pytest.mark.process
def test_a_server_that_cannot_start_says_why_in_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    create_key(keys_file := tmp_path / "keys.json", "a", Role.READ)
    certificate, key = Authority().issue("localhost").write(tmp_path, "server")
    tls = {"--tls-certificate": certificate, "--tls-key": key}
    read_by_all = shutil.copy(key, tmp_path / "read-by-all.key")
    read_by_all.chmod(0o644)
    everywhere = {"--host": "0.0.0.0"}  # noqa: S104
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        obstacles: list[tuple[dict[str, object], tuple[str, ...]]] = [
            ({"--device": "cuda:97"}, ("--device", "cuda:97, but torch")),
            ({"--state-dir": tmp_path / "file"}, ("--state-dir", "state folder")),
            (
                {"--jobs-url": f"sqlite:///{tmp_path}/absent/jobs.sqlite"},
                ("--jobs-url", "job record"),
            ),
            ({"--port": port}, ("--port", "cannot listen")),
            ({"--metrics-port": port}, ("--metrics-port", "/metrics")),
            (everywhere, ("--insecure",)),
            ({**everywhere, **tls}, ("--keys-file",)),  # TLS alone says not who calls
            ({**everywhere, "--keys-file": keys_file}, ("in the clear",)),
            ({**tls, "--tls-key": read_by_all}, ("chmod 600",)),
        ]
        for given, words in obstacles:
            roots = dict.fromkeys(("--checkpoint-root", "--dataset-root"), tmp_path)
            ports = dict.fromkeys(("--port", "--metrics-port"), 0)
            state = tmp_path / words[0]
            flags = {"--device": "cpu", "--state-dir": state, **roots, **ports, **given}
            command = [PROGRAM, "serve", *(str(part) for pair in flags.items() for part in pair)]
            refused = processes.run(command, check=False)
            assert refused.returncode == 1, refused.stderr
            last = refused.stderr.splitlines()[-1]
            assert last.startswith("FAILED_PRECONDITION: ")
            assert all(word in last for word in words), last
            assert "--device" not in given or not state.exists()


@pytest.mark.parametrize("lost", ["--tls-certificate", "--tls-key"])
def test_a_file_that_is_not_there_is_wrong_usage(run: Run, tmp_path: Path, lost: str) -> None:
    certificate, key = Authority().issue("localhost").write(tmp_path, "server")
    files = {"--tls-certificate": certificate, "--tls-key": key, lost: tmp_path / "absent.pem"}
    refused = run("serve", *(part for pair in files.items() for part in pair))
    assert refused.returncode == 2
    assert "absent.pem" in refused.stderr


def test_a_hang_up_does_not_end_a_server_that_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As its program sees to before torch is imported."""
    seen: list[object] = []
    command = SimpleNamespace(main=lambda: seen.append(signal.getsignal(signal.SIGHUP)))
    monkeypatch.setattr(sys, "argv", ["acpc-server", "serve"])
    monkeypatch.setattr(__main__, "load_command", lambda *_: command)
    kept = signal.getsignal(signal.SIGHUP)
    try:
        __main__.main()
    finally:
        signal.signal(signal.SIGHUP, kept)
    assert seen == [signal.SIG_IGN]


def test_help_breaks_lines_where_the_terminal_ends() -> None:
    shown = CliRunner().invoke(app, ["health", "--help"], env={"COLUMNS": "80"}).stdout
    lines = [line.strip() for line in shown.splitlines()]
    assert "Exit with 0 when the server serves, with 1 when it does not or cannot be" in lines


def keys(*arguments: object, **variables: str) -> Result:
    return CliRunner().invoke(app, ["keys", *map(str, arguments)], env=variables)


def test_a_key_from_its_making_to_its_end_beside_a_certificate(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    made = keys("create", "--name", "ci", "--role", "compute", "--days", 30, "--file", path)
    assert made.exit_code == 0, made.output
    key = made.stdout.strip()
    assert re.fullmatch(r"acpc_[0-9a-f]{12}_[0-9a-f]{64}", key)
    assert key[-64:] not in made.stderr
    found = read_keys(path).find(key)
    assert (found.expires - found.created).days in (29, 30)

    listed = keys("list", ACPC_KEYS_FILE=str(path))
    assert listed.exit_code == 0
    line = next(line for line in listed.stdout.splitlines() if found.id in line)
    assert "ci" in line
    assert "compute" in line
    assert key[-64:] not in listed.stdout

    (record,) = json.loads(keys("list", "--file", path, "-o", "json").stdout)
    assert record == {
        "id": found.id, "name": "ci", "role": "compute",
        "created": found.created.isoformat(), "expires": found.expires.isoformat(),
    }  # fmt: skip
    made = keys("certificate", "--name", "ops", "--role", "admin", "--file", path)
    assert made.stderr == "client certificates of ops have the role admin\n"
    _, other = json.loads(keys("list", "--file", path, "-o", "json").stdout)
    assert (other["name"], other["role"]) == ("ops", "admin")
    assert "ops" in keys("list", "--file", path).stdout
    assert keys("revoke", found.id, "--file", path).exit_code == 0
    assert read_keys(path).find(key) is None
    assert isinstance(keys("revoke", found.id, "--file", path).exception, NotFound)


def test_a_name_that_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    for command in ("create", "certificate"):
        made = keys(command, "--name", "a b", "--role", "read", "--file", path)
        assert isinstance(made.exception, FailedPrecondition)
    assert not path.exists()


def test_a_file_that_is_a_link_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.symlink_to(path)
    made = keys("create", "--name", "a", "--role", "read", "--file", path)
    assert isinstance(made.exception, FailedPrecondition)


@pytest.mark.parametrize("time", ["nan", "inf", "3e6", "1e300"])
def test_a_time_beyond_every_date_is_wrong_usage(tmp_path: Path, time: str) -> None:
    key = ("--name", "a", "--role", "read", "--file", tmp_path / "keys.json")
    assert keys("create", *key, "--days", time).exit_code == 2


def test_a_role_that_is_none(tmp_path: Path) -> None:
    wrong = keys("create", "--name", "a", "--role", "root", "--file", tmp_path / "keys.json")
    assert wrong.exit_code == 2
    assert "'root' is not one of 'read', 'compute', 'admin'" in wrong.stderr
    assert "Value error" not in wrong.stderr
