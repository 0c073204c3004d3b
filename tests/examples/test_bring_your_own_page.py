"""The tutorial's code is the package's code, and what it promises holds."""

import json
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from acpc_server.models import check_model, load_checkpoint
from example_scripts import EXAMPLES, install

SOURCE = EXAMPLES / "bring_your_own"
PAGE = (EXAMPLES.parent / "docs" / "bring-your-own-model.md").read_text()


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[None]:
    """The package can be imported; afterwards it is forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(install(SOURCE, tmp_path)))
        yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "acpc_conv_jepa"]:
        del sys.modules[name]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_entry_point_on_the_page_is_the_packages() -> None:
    (entry_point,) = blocks("toml")
    assert entry_point in (SOURCE / "pyproject.toml").read_text()


def test_the_config_on_the_page_is_one_that_the_family_takes() -> None:
    config = json.loads(blocks("json")[0])
    committed = json.loads((SOURCE / "checkpoints/conv-base/config.json").read_text())
    assert config.keys() == committed.keys()
    assert all(part in committed["encoder"] for part in config["encoder"])


def test_the_checkpoints_are_made_by_their_script(
    installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few steps of it: the folder loads, and its config is that of the committed ones."""
    given = f"--steps 2 --episodes 4 --only conv-base --out {tmp_path / 'out'}"
    monkeypatch.setattr(sys, "argv", ["make_checkpoints.py", *given.split()])
    runpy.run_path(str(SOURCE / "make_checkpoints.py"), run_name="__main__")
    made = load_checkpoint(tmp_path / "out", "conv-base", device=torch.device("cpu"))
    kept = load_checkpoint(SOURCE / "checkpoints", "conv-base", device=torch.device("cpu"))
    assert made.card.parameter_count == kept.card.parameter_count
    assert made.card.digest != kept.card.digest
    assert not any(check_model(kept).values())
    for name in ("conv-base", "conv-augmented"):
        config = json.loads((SOURCE / "checkpoints" / name / "config.json").read_text())
        assert config == json.loads((tmp_path / "out" / "conv-base" / "config.json").read_text())
