"""The arrows that docs/architecture.md draws are those that import-linter checks."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
PAGE = (ROOT / "docs/architecture.md").read_text()


def layers_of(chain: str) -> list[set[str]]:
    """Layers from the highest to the lowest, each the packages that share a place."""
    return [{name.strip() for name in layer.split("|")} for layer in chain.split("->")]


@pytest.mark.parametrize(
    ("side", "package"), [("server", "acpc_server"), ("client", "acpc_client"), ("lab", "acpc_lab")]
)
def test_the_page_draws_the_checked_arrows(side: str, package: str) -> None:
    [checked] = [
        contract["layers"]
        for contract in CONTRACTS
        if contract["type"] == "layers" and contract["layers"][0].startswith(f"{package}.")
    ]
    drawn = re.search(rf"^{side} +(.*(?:\n +.*)*)", PAGE, re.MULTILINE)
    assert drawn is not None
    common = {"acpc.datasets", "acpc.evidence", "acpc.contract"}
    shown = [layer - common for layer in layers_of(drawn[1])]
    enforced = [
        {name.removeprefix(f"{package}.") for name in layer} - common
        for layer in layers_of("->".join(checked))
    ]
    assert [layer for layer in shown if layer] == [layer for layer in enforced if layer]
