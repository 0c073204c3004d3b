"""Tiers: which one a test is in, and which ones a run asks for."""

import re
from functools import cache
from pathlib import Path

import pytest

TIERS = ("nightly", "slow", "process", "unit")
# Folders whose tests ask a server in a process of its own, or run example programs.
PROCESS_FOLDERS = ("contract", "e2e", "examples", "hostile")
TESTS = Path(__file__).parents[1]


def tier_of(item: pytest.Item) -> str:
    """The tier that a test is marked with, else that of its folder."""
    marked = (tier for tier in TIERS if item.get_closest_marker(tier))
    return next(marked, _of_folder(item.path))


def _of_folder(path: Path) -> str:
    return "process" if path.relative_to(TESTS).parts[0] in PROCESS_FOLDERS else "unit"


@cache
def tiers_in(path: Path) -> frozenset[str]:
    """The tiers that tests of a file can be in, by its folder and the marks that its text names."""
    text = path.read_text()
    whole = re.search(r"^pytestmark = \[?\s*pytest\.mark\.(\w+)", text, re.MULTILINE)
    usual = whole[1] if whole and whole[1] in TIERS else _of_folder(path)
    return frozenset({usual, *re.findall(rf"mark\.({'|'.join(TIERS)})\b", text)})


def selected(expression: str) -> frozenset[str]:
    """The tiers of ``-m EXPRESSION``; all where it names other marks as well."""
    names = set(re.findall(r"\w+", expression)) - {"and", "or", "not"}
    if not expression or not names <= {*TIERS}:
        return frozenset(TIERS)
    chosen = (tier for tier in TIERS if eval(expression, {name: name == tier for name in TIERS}))  # noqa: S307
    return frozenset(chosen)
