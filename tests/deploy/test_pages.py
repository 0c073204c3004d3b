"""What the pages say of the code is true: names they import, files they name, words they avoid."""

import ast
import importlib
import re
import sys
from doctest import DocTestParser
from pathlib import Path

import pytest
from deployment_files import ROOT
from processes import run

PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
# Words that readers had to guess at; CONTRIBUTING says what to write.
AVOIDED = re.compile(r"\b(anew|lest|whence|desks?|seats?|refus(e[sd]?|als?|ing))\b", re.I)


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


def _examples(module: Path) -> list[str]:
    """The examples in a module's docstrings."""
    tree = ast.walk(ast.parse(module.read_text()))
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    documented = [x for x in tree if isinstance(x, kinds)]
    texts = [ast.get_docstring(one) or "" for one in documented]
    return [one.source for text in texts for one in DocTestParser().get_examples(text)]


def test_a_history_comes_with_the_blocks_between_its_frames() -> None:
    for page in [*PAGES, *(ROOT / "client").rglob("*.py")]:
        fenced = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        for code in _examples(page) if page.suffix == ".py" else fenced:
            for call in (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)):
                given = {ast.unparse(one) for one in call.args}
                if "history" in given and "blocks" not in given:
                    assert "past_blocks" in {given.arg for given in call.keywords}, page


def test_an_example_of_the_asyncio_client_waits() -> None:
    """The blocking client's is made from it."""
    modules = (ROOT / "client/acpc_client/aio").rglob("*.py")
    examples = [ast.parse(code).body[0] for module in modules for code in _examples(module)]
    assert {type(one) for one in examples} == {ast.AsyncWith}


def test_the_contract_is_compared_as_the_linter_compares_it() -> None:
    """With what it imports, another release of buf brings another descriptor.proto."""
    for name in ("README.md", "buf.yaml"):
        text = (ROOT / "proto" / name).read_text()
        assert text.count("buf breaking --exclude-imports --against") == text.count("buf breaking")
    assert '"--exclude-imports"' in (ROOT / "proto/lint.py").read_text()


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


def test_decisions_are_numbered_and_listed_without_a_gap() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(
        r"^- \[(\d{4}) .+\]\((.+\.md)\)$", (folder / "README.md").read_text(), re.MULTILINE
    )
    assert [int(number) for number, _ in listed] == list(range(1, len(listed) + 1))
    assert {name for _, name in listed} == {page.name for page in folder.glob("0*.md")}
    for number, name in listed:
        assert name.startswith(number)
        assert (folder / name).read_text().startswith(f"# {int(number)}. "), name


def test_a_command_names_a_job_by_as_many_characters_as_the_server_takes() -> None:
    commands = sorted((ROOT / "client/acpc_lab/cli").glob("*.py"))
    for path in [*PAGES, *commands]:
        for name in re.findall(r"operations/([0-9a-f]+)\b(?!\.\.\.)", path.read_text()):
            assert len(name) >= 6, (path, name)


def test_pages_are_in_plain_words() -> None:
    found = {_name(page): AVOIDED.findall(page.read_text()) for page in PAGES}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.process
def test_the_performance_page_holds_what_the_benchmarks_wrote() -> None:
    run([sys.executable, ROOT / "benchmarks/page.py", "--check"])
