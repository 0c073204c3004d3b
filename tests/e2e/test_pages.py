"""Every command that a page names is one of the real parser, with its options."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from acpc_lab.cli import app as acpc
from acpc_server.cli import app as server

ROOT = Path(__file__).parents[2]
PROGRAMS = {"acpc": typer.main.get_command(acpc), "acpc-server": typer.main.get_command(server)}
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^(?:\$ |export \S+ *\n)?((?:acpc|acpc-server) .*?)$", re.MULTILINE)
CODE = re.compile(r"`((?:acpc|acpc-server) [^`]+)`")


def commands(text: str) -> list[str]:
    text = text.replace("\\\n", " ")
    blocks = "\n".join(FENCE.findall(text))
    return [*COMMAND.findall(blocks), *CODE.findall(FENCE.sub("", text))]


def found() -> set[tuple[str, str]]:
    """Each page, and help, with the commands that it names."""
    places = (
        "*.md",
        "docs/**/*.md",
        "examples/**/*.md",
        "deploy/**/*.md",
        "client/acpc_lab/**/*.*",
    )
    files = [path for place in places for path in ROOT.glob(place)]
    texts = {p: p.read_text() for p in files if p.suffix in (".md", ".py", ".yaml")}
    return {
        (path.relative_to(ROOT).as_posix(), command)
        for path, text in texts.items()
        for command in commands(text)
        if path.name != "CHANGELOG.md"
    }


WRONG = "acpc-server serve --checkpoint-rot checkpoints"  # which a page shows as an error
FOUND = sorted(item for item in found() if item[1] != WRONG)


def words_of(command: str) -> list[str]:
    split = shlex.shlex(command.replace("...", ""), posix=True, punctuation_chars="|&><;")
    split.whitespace_split, split.commenters = True, "#"
    words: list[str] = []
    try:
        for word in split:
            if word in ("|", "||", "&&", ">", ";"):
                break
            words.append(word)
    except ValueError:  # a quotation that goes on behind the mark
        pass
    return [word for word in words if not word.startswith("<")]


def problem(command: str) -> str:
    program, *words = words_of(command)
    found: Any = PROGRAMS[program]
    while words and hasattr(found, "commands") and not words[0].startswith("-"):
        if words[0] not in found.commands:
            return f"no command {words[0]!r}"
        found = found.commands[words.pop(0)]
    known = {flag for p in found.params for flag in (*p.opts, *p.secondary_opts)}
    known |= {"-h", "--help", "--version", "--target"}
    flags = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    unknown = [flag for flag in flags if flag not in known]
    return f"no option {unknown[0]!r}" if unknown else ""


def test_pages_name_commands() -> None:
    assert len(FOUND) > 100


@pytest.mark.parametrize("page", sorted({page for page, _ in FOUND}))
def test_a_page_names_commands_that_there_are(page: str) -> None:
    wrong = {command: problem(command) for at, command in FOUND if at == page}
    assert {command: why for command, why in wrong.items() if why} == {}
