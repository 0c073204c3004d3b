"""What CONTRIBUTING, the hooks and the devcontainer tell a newcomer to run exists."""

import json
import re
import tomllib
from pathlib import Path

import processes
import pytest
import yaml
from deployment_files import ROOT

GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def test_the_walk_through_changes_lines_that_are_there() -> None:
    """A diff's removed line, in the file that the text before it names."""
    steps = re.findall(r"`([\w/]+\.py)`:\n\n```diff\n-(.*)\n\+(.*)\n```", GUIDE)
    assert len(steps) == 2
    for path, old, new in steps:
        assert old in (ROOT / path).read_text().splitlines()
        assert len(new) <= 100


def test_every_make_target_a_page_names_exists() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    code = re.compile(r"```.*?```|`[^`]+`", re.DOTALL)
    command = re.compile(r"(?:`|^|&& )make (?!-C )([a-z-]+)", re.MULTILINE)
    written = [part for page in pages for part in code.findall(page.read_text())]
    named = {target for part in written for target in command.findall(part)}
    assert {"setup", "demo", "test", "docs-serve", "release-check"} <= named <= TARGETS


def test_make_help_lists_every_target() -> None:
    phony = set(MAKEFILE.replace("\\\n", " ").partition(".PHONY:")[2].splitlines()[0].split())
    described = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
    assert phony == described == TARGETS


def test_hooks_are_local_and_use_what_setup_installs() -> None:
    """No hook is fetched: hooks work without a network and with the versions of constraints.txt."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert {hook["id"] for hook in hooks} == {
        "ruff",
        "ruff-format",
        "import-rules",
        "wire-contract",
    }
    assert all(hook["language"] == "system" and ".venv/bin" in hook["entry"] for hook in hooks)


def test_the_devcontainer_sets_the_project_up() -> None:
    config = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert "make setup" in config["postCreateCommand"]


def _extras(shown: str) -> list[str]:
    """What the commands that `make --dry-run` shows install, one installation after another."""
    assert shown.count(" pip install ") == shown.count(" --constraint constraints.txt ")
    return re.findall(r"--editable '\.\[([a-z0-9,]+)\]'", shown)


def _shown(target: str, venv: str) -> str:
    command = ["make", "--dry-run", "--no-print-directory", f"VENV={venv}", target]
    return processes.run(command, cwd=ROOT).stdout


@pytest.mark.process
@pytest.mark.parametrize("target", ["setup", "test", "release-check"])
def test_a_target_does_its_own_set_up(target: str) -> None:
    """In a fresh clone, each starts by installing every extra, pinned."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = _extras(_shown(target, "/nonexistent/venv"))[0]
    assert set(installed.split(",")) == set(extras["optional-dependencies"])


@pytest.mark.process
@pytest.mark.parametrize(
    ("target", "installed"),
    [
        ("demo", ["server,lab"]),
        ("sweep-demo", ["server,lab"]),
        ("study-demo", ["server,lab", "tsne"]),
        ("lint", ["lint"]),
        ("docs", ["docs"]),
    ],
)
def test_a_target_installs_what_it_runs_on_alone(target: str, installed: list[str]) -> None:
    assert _extras(_shown(target, "/nonexistent/venv")) == installed


@pytest.mark.process
@pytest.mark.parametrize("target", ["demo", "study-demo", "lint", "docs"])
def test_what_setup_has_installed_is_not_installed_again(target: str, tmp_path: Path) -> None:
    """The stamp of everything stands for every smaller one."""
    (tmp_path / ".ready").touch()
    stamps = [f"{tmp_path}/.{name}" for name in ("demo", "studies", "lint", "docs", "ready")]
    command = ["make", "--no-print-directory", f"VENV={tmp_path}", "PYTHON=false"]
    made = {line for line in _shown(target, str(tmp_path)).split() if line in stamps}
    printed = processes.run([*command, *made], cwd=ROOT).stdout
    assert "Installing" not in printed
    assert made and all(Path(stamp).exists() for stamp in made)
