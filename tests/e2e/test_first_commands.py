"""Wrong first commands print what is wrong and what was probably meant."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import acpc_lab.cli
import acpc_server.cli
import pytest
from public_dataset import public_columns, write_public_dataset
from served_world import ServedWorld
from server_process import ServerProcess
from typer.testing import CliRunner

LINES = Path(__file__).with_name("first_commands.txt").read_text().splitlines()
ROWS = list(zip(LINES[::2], LINES[1::2], strict=True))  # "..." stands for anything
APPS = {"acpc": acpc_lab.cli.app, "acpc-server": acpc_server.cli.app}


@pytest.fixture(scope="module")
def current(world: ServedWorld) -> Iterator[None]:
    path = world.dataset_root / "current.h5"
    write_public_dataset(path, public_columns((60, 80), state="state"))
    yield
    path.unlink()


@pytest.mark.parametrize(("command", "printed"), ROWS, ids=[command for command, _ in ROWS])
def test_a_wrong_first_command_says_what_was_meant(
    command: str, printed: str, server: ServerProcess, current: None
) -> None:
    program, *arguments = shlex.split(command)
    variables = {"ACPC_TARGET": server.address, "COLUMNS": "400"}
    answer = CliRunner().invoke(APPS[program], arguments, env=variables)
    assert answer.exit_code in (1, 2)
    told = " ".join(answer.stderr.replace("│", " ").split())
    place = 0
    for part in printed.split("..."):
        place = told.find(part.strip(), place)
        assert place >= 0, told
