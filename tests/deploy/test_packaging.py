"""The thin client alone, extras by path, and commands that say what they lack."""

import re
import sys
import tomllib
from importlib import metadata

import processes
import pytest
from deployment_files import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
FOLDERS = ("docs", "deploy", "examples", "client", "server", "proto", ".devcontainer", ".ci")
SUFFIXES = {".md", ".py", ".toml", ".yaml", ".yml", ".service", ".json", ".txt", ".sh", ""}
TEXTS = sorted(
    path
    for path in (
        *(path for path in ROOT.iterdir() if path.name != "constraints.txt"),
        *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*")),
    )
    if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts
)
# acpc as a package index would be asked for it: not a path, not a wheel, not another name.
INDEX_NAME = re.compile(r"(?<![\w./-])acpc(?:\[[\w,]+\])?(?=$|['\"]|[<>=~!;]=?)")


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=;]", requirement)[0]


def _installed_by(text: str) -> list[str]:
    """The words after every ``pip install`` and every requirement in a list of dependencies."""
    lines = re.sub(r"\\\n", " ", text).splitlines()
    words = [word for line in lines for word in line.partition("pip install")[2].split()]
    requirements = re.findall(r"dependencies = (\[.*?\])\n", text, re.DOTALL)
    return words + [found for names in requirements for found in re.findall(r"\"[^\"]+\"", names)]


def test_no_install_line_asks_a_package_index_for_acpc() -> None:
    """The name is not ours there: such a line finds nothing, or somebody else's package."""
    wrong = {
        str(path.relative_to(ROOT)): word
        for path in TEXTS
        for word in _installed_by(path.read_text(errors="replace"))
        if INDEX_NAME.search(word)
    }
    assert wrong == {}


def test_every_extra_that_an_install_line_names_exists() -> None:
    named = set()
    for path in TEXTS:
        for word in _installed_by(path.read_text(errors="replace")):
            for extras in re.findall(r"(?:\.|\.whl|\))\[([\w,]+)\]", word):
                named |= set(extras.split(","))
    assert {"lab", "server"} <= named <= set(EXTRAS)


def test_without_extras_the_thin_client_alone_is_installed() -> None:
    thin = {"grpcio", "grpcio-status", "protobuf", "googleapis-common-protos", "numpy"}
    assert {_name(requirement) for requirement in PROJECT["dependencies"]} == thin
    small = {"tracing", "postgres", "hdf5", "hub", "lance", "tsne"}
    assert set(EXTRAS) == {"lab", "server", "dev", "lint", "docs"} | small


def test_the_blocking_client_is_made_of_the_asyncio_one() -> None:
    """Its modules, in no commit, are those of the other, and nothing in them waits for a loop."""
    client = ROOT / "client/acpc_client"
    made = {path.name: path.read_text() for path in client.glob("sync/*.py")}
    assert made.keys() == {path.name for path in client.glob("aio/*.py")}
    for name, text in made.items():
        code = text.partition("\n")[2]
        assert not re.search(r"\b(async|await|aio|Async[A-Z]\w*)\b", code), name


def test_all_that_the_extras_install_is_pinned() -> None:
    """So that two installs are one. What torch needs differs between processors and GPUs."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines}
    texts = [*PROJECT["dependencies"], *(text for needed in EXTRAS.values() for text in needed)]
    asked, seen = [Requirement(text) for text in texts], set[Requirement]()
    while asked:
        requirement = asked.pop()
        if requirement not in seen and requirement.name != "torch":
            asked += _needed_by(requirement)
        seen.add(requirement)
    needed = {canonicalize_name(requirement.name) for requirement in seen}
    assert "python-dateutil" in needed, "pandas needs it"
    assert needed - pinned == set()


def _needed_by(requirement: Requirement) -> list[Requirement]:
    """What an installed package needs here, with the extras that are asked of it."""
    try:
        found = [Requirement(text) for text in metadata.requires(requirement.name) or []]
    except metadata.PackageNotFoundError:  # of another platform
        return []
    extras = [{"extra": extra} for extra in ("", *requirement.extras)]
    return [x for x in found if x.marker is None or any(map(x.marker.evaluate, extras))]


@pytest.mark.process
@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [
        ("acpc_server.__main__", "torch", "server"),
        ("acpc_server.__main__", "typer", "server"),
        ("acpc_lab.__main__", "typer", "lab"),
        ("acpc_lab.__main__", "rich", "lab"),
    ],
)
def test_a_command_without_its_extra_says_what_to_install(
    module: str, missing: str, extra: str
) -> None:
    """One sentence, exit code 2, no traceback."""
    code = f"import sys; sys.modules[{missing!r}] = None; import {module} as m; m.main()"
    shown = processes.run([sys.executable, "-c", code], check=False)
    assert shown.returncode == 2
    assert shown.stdout == ""
    (line,) = shown.stderr.splitlines()
    assert missing in line
    assert f"pip install '.[{extra}]'" in line
    assert f"acpc-{PROJECT['version']}-py3-none-any.whl[{extra}]" in line
