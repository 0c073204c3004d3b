"""What pages name is there: what their Python imports, files, make targets."""

import ast
import importlib
import re
from pathlib import Path

import pytest
from deployment_files import ROOT

PAGES = sorted(
    {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")}
    - {ROOT / "CHANGELOG.md"}
)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _imports(page: Path) -> list[tuple[str, str]]:
    """Module and name of each import of ours in the Python on a page."""
    found = []
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                ("acpc_client", "acpc_lab", "acpc_server")
            ):
                found += [(str(node.module), alias.name) for alias in node.names]
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if _imports(page)], ids=_name)
def test_what_a_page_imports_exists(page: Path) -> None:
    for module, name in _imports(page):
        assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


def test_every_package_and_module_in_the_architecture_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    tree = re.search(r"## Packages\n\n```\n(.*?)```", page, re.DOTALL)
    assert tree
    base = Path()
    for line in tree[1].splitlines():
        names = re.findall(r"[\w./]+(?:/|\.py)(?= )", line[:22] + " ")
        if names and not line.startswith(" "):
            base = ROOT / names[0]
        for name in names:
            assert (ROOT / name if not line.startswith(" ") else base / name).exists(), line
    for package, module in re.findall(r"`(\w+)/(\w+)`", page):
        folder = ROOT / "server" / "acpc_server" / package
        assert (folder / f"{module}.py").exists() or (folder / module).is_dir(), module


def test_every_file_that_a_page_names_exists() -> None:
    """Folders of the repository, then a file with an ending; links are checked by mkdocs."""
    named = re.compile(
        r"`((?:server|client|proto|tests|benchmarks|examples|deploy|docs)/[\w./-]+\.(?:py|proto|md|ya?ml|json|toml|cpp|mjs))`"
    )
    found = {(page, name) for page in PAGES for name in named.findall(page.read_text())}
    assert found
    assert [(_name(page), name) for page, name in found if not (ROOT / name).exists()] == []


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = re.compile(r"```.*?```|`[^`]+`", re.DOTALL)
    command = re.compile(r"(?:`|^|&& )make (?!-C )([a-z-]+)", re.MULTILINE)
    written = [part for page in PAGES for part in code.findall(page.read_text())]
    assert {target for part in written for target in command.findall(part)} <= targets
