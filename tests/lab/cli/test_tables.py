"""Tables fit 80 columns, and every list has the same formats."""

import csv
import inspect
import json
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
import typer
from acpc.contract import NUMBERS, TITLES, Fit, Place, Score
from acpc.v1 import scoring_service_pb2 as pb
from acpc_command import Acpc
from acpc_lab.cli import app, cells, render
from acpc_lab.report import ReportData
from acpc_lab.report.verdicts import table
from report_samples import judged, measured, side


def _commands(
    found: Any,
    words: tuple[str, ...] = (),
) -> Iterator[tuple[str, Any]]:
    if not hasattr(found, "commands"):
        yield " ".join(words), found
    for name in getattr(found, "commands", ()):
        yield from _commands(found.commands[name], (*words, name))


COMMANDS = dict(_commands(typer.main.get_command(app)))


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
    assert max(map(len, shown["table"].stdout.splitlines())) <= 80
    headings = {form: shown[form].stdout.splitlines()[0].split() for form in ("table", "wide")}
    assert headings["table"] == headings["wide"][: len(headings["table"])]
    assert len(headings["table"]) < len(headings["wide"]) or command == "list datasets"
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


@pytest.fixture(scope="module")
def whole() -> Score:
    """A score of which every number is known."""
    found = judged(side("new", 0.2, 50.0), side("base", 1.0, 50.0))
    fit = Fit.from_message(pb.Fit(outcome=1, skill=0.2, interval={"lower": 0.1, "upper": 0.3}))
    names = {x.name for x in fields(found.checkpoint)} & {*NUMBERS}
    made = {name: 0.5 for name in names if getattr(found.checkpoint, name) is None}
    return replace(found, checkpoint=replace(found.checkpoint, fit=fit, **made))


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_of_a_score_is_where_its_declaration_says(
    name: str, whole: Score, capsys: pytest.CaptureFixture[str]
) -> None:
    number, item = NUMBERS[name], measured("new", "blur:15", whole)
    row = item.row()
    assert row[name] == whole.numbers()[name] is not None
    assert (f"reference_{name}" in row) == number.paired
    assert (name.removesuffix("_raw") in whole.metrics()) == number.tracked
    columns = {x.name for x in table(ReportData("one", (item,)))[0]}
    assert (name in columns) == (number.report is not Place.NONE)
    wide = {x.name: x.wide for x in cells.COLUMNS}.get(name)
    assert wide == {Place.FIRST: False, Place.WIDE: True}.get(number.listing)
    for wide, form in ((True, render.Format.WIDE), (False, render.Format.TABLE)):
        render.FORM.set(form)  # the last one is what every command begins with
        render.score(whole)
        shown = {line.split("  ")[0] for line in capsys.readouterr().out.splitlines()}
        assert (TITLES.get(name) in shown) == (name in TITLES and (wide or not number.rare))


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
def test_help_is_plain_and_its_examples_fit_80_columns(words: str, acpc: Acpc) -> None:
    shown = acpc(*words.split(), "-h", COLUMNS="80").stdout
    assert "<bool>" not in shown and "Usage: acpc" in shown
    about = inspect.cleandoc(COMMANDS[words].help or "").splitlines()
    examples = {line.strip() for line in about if line.startswith("    ")} - {""}
    assert examples <= {line.strip() for line in shown.splitlines()}
