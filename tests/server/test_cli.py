"""The command line as an operator meets it: exit codes, and one line for what is wrong."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import processes
import pytest
import torch
from acpc_server.cli import app, main
from acpc_server.models.loader import load_checkpoint
from public_checkpoint import write_checkpoint
from typer.testing import CliRunner
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
    shown = run("doctor", checkpoint)
    assert shown.returncode == 0
    letters = "".join(c for c in shown.stdout if c.isalnum())
    assert digest(checkpoint) in letters.replace("imagesize", " ")
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
    (tmp_path / "roots").mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        obstacles = {
            "--state-dir": (tmp_path / "file", "state folder"),
            "--jobs-url": (f"sqlite:///{tmp_path}/absent/jobs.sqlite", "job record"),
            "--port": (port, "cannot listen"),
            "--metrics-port": (port, "/metrics"),
        }
        for obstacle, (value, named) in obstacles.items():
            flags = {
                "--checkpoint-root": tmp_path / "roots",
                "--dataset-root": tmp_path / "roots",
                "--state-dir": tmp_path / "state",
                "--port": 0,
                "--metrics-port": 0,
                "--device": "cpu",
                obstacle: value,
            }
            command = [PROGRAM, "serve", *(str(part) for pair in flags.items() for part in pair)]
            refused = processes.run(command, check=False)
            assert refused.returncode == 1, refused.stderr
            last = refused.stderr.splitlines()[-1]
            assert last.startswith("FAILED_PRECONDITION: ")
            assert named in last
            assert obstacle in last, "it names the flag to change"


@pytest.mark.process  # serving takes signals and warnings of the whole process
def test_a_device_that_does_not_exist_is_not_served(tmp_path: Path) -> None:
    state = tmp_path / "state"
    folders = ("--checkpoint-root", tmp_path, "--dataset-root", tmp_path, "--state-dir", state)
    command = [PROGRAM, "serve", *map(str, folders), "--device", "cuda:97"]
    refused = processes.run(command, check=False)
    assert refused.returncode == 1
    assert "--device cuda:97, but torch" in refused.stderr
    assert not state.exists()


def test_help_breaks_lines_where_the_terminal_ends() -> None:
    shown = CliRunner().invoke(app, ["health", "--help"], env={"COLUMNS": "80"}).stdout
    lines = [line.strip() for line in shown.splitlines()]
    assert "Exit with 0 when the server serves, with 1 when it does not or cannot be" in lines
