"""Tables fit where they are printed, and every list has the same formats."""

import csv
import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import typer
from acpc_command import Acpc
from acpc_lab.cli import app
from acpc_lab.cli.table import WIDE, Column, drawn, text_of


def _commands(
    found: Any,
    words: tuple[str, ...] = (),
) -> Iterator[tuple[str, Any]]:
    if not hasattr(found, "commands"):
        yield " ".join(words), found
    for name in getattr(found, "commands", ()):
        yield from _commands(found.commands[name], (*words, name))


COMMANDS = dict(_commands(typer.main.get_command(app)))


class Row(NamedTuple):
    digest: str
    what: str
    rate: float | None
    place: str = "here"


COLUMNS = (
    Column("digest", "digest", short=8),
    Column("what it is", "what"),
    Column("rate", "rate", ".2f", rank=1),
    Column("place", "place", rank=2),
    Column("half", lambda row: row.rate and row.rate / 2, rank=WIDE),
)
ROWS = [Row("0123456789abcdef", "a sentence of several words that can be folded", 0.5),
        Row("fedcba9876543210", "short", None)]  # fmt: skip


def lines(width: int | None, **options: bool) -> tuple[list[str], list[str]]:
    """The lines of the table at a width, and what it leaves out."""
    table, dropped = drawn(COLUMNS, ROWS, width or math.inf, **options)
    return text_of(table, width).splitlines(), dropped


def test_without_a_width_a_table_is_plain_and_whole() -> None:
    found, dropped = lines(None)
    assert found == [
        "digest            what it is" + 38 * " " + "rate  place",
        "0123456789abcdef  a sentence of several words that can be folded  0.50  here",
        "fedcba9876543210  short" + 46 * " " + "-  here",
    ]
    assert dropped == []


@pytest.mark.parametrize(
    ("width", "dropped"),
    [(100, []), (70, []), (55, []), (50, ["place"]), (42, ["place", "rate"]), (24, None)],
)
def test_what_matters_least_goes_first_and_text_is_folded(
    width: int, dropped: list[str] | None
) -> None:
    found, left_out = lines(width)
    assert left_out == (dropped if dropped is not None else ["place", "rate"])
    assert max(map(len, found)) <= width
    assert found[1].split()[0] == ("0123456789abcdef" if width >= 70 else "01234567")
    assert all(word in " ".join(found) for word in ROWS[0].what.split())


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("list checkpoints", "one"),
        ("list datasets", "rooms.h5"),
        ("list tasks", "rooms"),
        ("list jobs", "operations/first"),
        ("list shifts", "gaussian_noise:SIGMA"),
    ],
)
def test_every_list_has_the_same_formats(command: str, first: str, acpc: Acpc) -> None:
    shown = {form: acpc(*command.split(), "-o", form) for form in ("table", "wide", "csv", "json")}
    names = [row[0] for row in csv.reader(shown["csv"].stdout.splitlines())][1:]
    assert names[0] == first
    assert len(json.loads(shown["json"].stdout)) == len(names)
    for form in ("table", "wide"):
        lines = shown[form].stdout.splitlines()
        assert [line.split("  ")[0] for line in lines[1:]] == names
        assert len({line.index(cell) for line, cell in zip(lines[1:], names, strict=True)}) == 1
        assert "─" not in shown[form].stdout


def test_a_shift_is_listed_with_what_it_does(acpc: Acpc) -> None:
    listed = json.loads(acpc("list", "shifts", "-o", "json").stdout)
    said = {one["shift"].partition(":")[0]: one["what"] for one in listed}
    assert said["gaussian_noise"].startswith("Independent noise: ")
    assert all(len(what) > 12 and "about(" not in what for what in said.values())


def test_the_program_is_no_larger_than_it_says() -> None:
    """Commands and places where an option can be given, help included, of the real parser."""
    assert len(COMMANDS) <= 24
    options = [p for one in COMMANDS.values() for p in one.params if p.param_type_name == "option"]
    assert len(options) + len(COMMANDS) <= 250
    for words, one in COMMANDS.items():
        flags = {flag for p in one.params for flag in p.opts}
        assert not flags & {"--json", "--timeout", "--token-file", "--checkpoint"}, words
        assert ("-o" in flags) == ("--output" in flags)


@pytest.mark.parametrize("words", COMMANDS)
def test_help_is_plain(words: str, acpc: Acpc) -> None:
    shown = acpc(*words.split(), "-h").stdout
    assert "<bool>" not in shown and "Usage: acpc" in shown
