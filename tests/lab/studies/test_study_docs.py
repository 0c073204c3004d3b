"""Every study has a page with the same parts, a picture that is there, and commands that exist."""

import re
import shlex
from pathlib import Path

import pytest
import typer
from acpc_lab.cli import app
from acpc_lab.studies import STUDIES

DOCS = Path(__file__).parents[3] / "docs" / "studies"
PARTS = ("What it does", "What it does not", "The figure", "Run it", "The paper's numbers")


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_a_whole_page(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text()
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == list(PARTS)
    assert "**Question.**" in page
    (picture,) = re.findall(r"!\[.+\]\((.+)\)", page)
    assert 0 < (DOCS / picture).stat().st_size < 400_000
    assert f"({name}.md)" in (DOCS / "README.md").read_text()


def test_every_command_of_the_pages_is_one_that_exists() -> None:
    group = typer.main.get_command(app)
    studies = group.commands["study"].commands
    found = 0
    for page in DOCS.glob("*.md"):
        for line in re.findall(r"^acpc study (.*)$", page.read_text(), re.MULTILINE):
            for command in f"study {line}".split("&& acpc "):
                words = shlex.split(command.partition(">")[0], comments=True)
                _, name, *rest = words
                known = {option for p in studies[name].params for option in p.opts} | {"--help"}
                assert {word for word in rest if word.startswith("--")} <= known, command
                found += 1
    assert found > 15
