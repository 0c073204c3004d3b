"""Tables fit where they are printed, and every list has the same formats."""

import json
import math
from typing import NamedTuple

import pytest
from acpc_command import Acpc
from acpc_lab.cli.table import WIDE, Column, drawn, text_of


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
        ("checkpoints list", "one"),
        ("datasets", "rooms.h5"),
        ("tasks", "rooms"),
        ("operations list", "operations/first"),
        ("shifts", "gaussian_noise:SIGMA"),
    ],
)
def test_every_list_has_the_same_formats(command: str, first: str, acpc: Acpc) -> None:
    shown = {form: acpc(*command.split(), "-o", form) for form in ("table", "wide", "name", "json")}
    names = shown["name"].stdout.splitlines()
    assert names[0] == first
    assert len(json.loads(shown["json"].stdout)) == len(names)
    assert shown["json"].stdout == acpc(*command.split(), "--json").stdout
    for form in ("table", "wide"):
        lines = shown[form].stdout.splitlines()
        assert [line.split("  ")[0] for line in lines[1:]] == names
        assert len({line.index(cell) for line, cell in zip(lines[1:], names, strict=True)}) == 1
        assert "─" not in shown[form].stdout


def test_help_names_the_rare_options_and_explains_them_when_asked(acpc: Acpc) -> None:
    short, whole = (acpc("score", flag).stdout for flag in ("--help", "--help-all"))
    for option in ("--extra-quantiles", "--tls-ca", "--reference-digest"):
        assert f" {option}," in short and f"│ {option} " in whole
    assert len(short.splitlines()) < 0.7 * len(whole.splitlines())
    assert "--shift gaussian_noise:0.08" in short and "3 the screen failed" in short
    group = acpc("sweep", "--help").stdout
    assert "<bool>" not in whole + group and "--quiet" in short
