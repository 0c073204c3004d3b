"""The families that are known, and frozen models of theirs."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from acpc_server.errors import FailedPrecondition, UnsafeCheckpoint
from acpc_server.models import (
    CheckpointLimits,
    load_checkpoint,
)
from example_scripts import install_module
from public_checkpoint import write_checkpoint
from torch import Tensor

CPU = torch.device("cpu")
CONFIG = {"_target_": "somebody.Linear", "side": 2, "dim": 4, "block": 3}
PLUGIN = """
import torch
from acpc_server.errors import UnsafeCheckpoint
from acpc_server.models import ModelCard

class LinearModel:
    def __init__(self, card, state, device):
        self.card, self.device = card, device
        self.state = {name: tensor.to(device) for name, tensor in state.items()}
    def encode(self, frames):
        return frames.flatten(1) @ self.state["encode"]
    def embed_actions(self, blocks):
        return blocks
    def predict_next(self, latents, actions):
        return latents[:, -1] + actions[:, -1] @ self.state["act"]

class LinearFamily:
    name = "linear"
    targets = frozenset({"somebody.Linear"})
    def build(self, config, state, *, device, limits):
        side, dim = config["side"], config["dim"]
        if state.tensors["encode"].shape != (3 * side**2, dim):
            raise UnsafeCheckpoint(f"{state.filename}: encode: wrong shape")
        card = ModelCard("linear", state.digest, side, dim, 1, config["block"],
                         sum(t.numel() for t in state.tensors.values()))
        return LinearModel(card, state.tensors, device)

family = LinearFamily()
other = LinearFamily()
not_a_family = 3
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    def write(**entries: str) -> None:
        install_module(tmp_path / "site", "acpc_linear", PLUGIN, "acpc.model_families", **entries)
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
        monkeypatch.delitem(sys.modules, "acpc_linear", raising=False)

    return write


def write_linear(root: Path) -> dict[str, Tensor]:
    state = {"encode": torch.randn(12, 4), "act": torch.randn(3, 4)}
    write_checkpoint(root / "run", CONFIG, state)
    return state


def test_plugin_is_read_as_safely(tmp_path: Path, install: Install) -> None:
    """A plug-in gets tensors only: the reader refuses what it refuses for the known families."""
    install(linear="acpc_linear:family")
    write_checkpoint(tmp_path / "root" / "run", CONFIG, {"encode": torch.nn.Linear(2, 2)})
    with pytest.raises(UnsafeCheckpoint, match="pickled Python object"):
        load_checkpoint(tmp_path / "root", "run", device=CPU)


@pytest.mark.parametrize(
    ("entries", "fragment"),
    [
        ({"linear": "acpc_linear:missing"}, "does not load"),
        ({"linear": "acpc_no_module:family"}, "does not load"),
        ({"linear": "acpc_linear:not_a_family"}, "is no ModelFamily"),
        ({"one": "acpc_linear:family", "two": "acpc_linear:other"}, "several installed"),
    ],
)
def test_broken_plugins(
    tmp_path: Path, install: Install, entries: dict[str, str], fragment: str
) -> None:
    """They are named when their checkpoint is asked for, and harm no other family."""
    install(**entries)
    write_linear(tmp_path / "root")
    write_checkpoint(tmp_path / "root" / "lewm")
    with pytest.raises(FailedPrecondition, match=fragment):
        load_checkpoint(tmp_path / "root", "run", device=CPU)
    limits = CheckpointLimits()
    assert load_checkpoint(tmp_path / "root", "lewm", device=CPU, limits=limits).card.history == 3
