"""The families that are known, and frozen models of theirs."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from acpc_server.errors import FailedPrecondition, InvalidArgument, UnsafeCheckpoint
from acpc_server.models import (
    CheckpointLimits,
    FrozenJepa,
    FrozenWorldModel,
    JepaModel,
    check_actions,
    check_history,
    load_checkpoint,
    rollout,
)
from acpc_server.models.config import parse_config
from acpc_server.models.families import jepa_network
from acpc_server.models.parts import JepaConfig
from public_checkpoint import public_config, random_state_dict, write_checkpoint
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
    """Puts a distribution with the given entry points on sys.path."""

    def write(**entries: str) -> None:
        site = tmp_path / "site"
        info = site / "acpc_linear-1.0.dist-info"
        info.mkdir(parents=True)
        (site / "acpc_linear.py").write_text(PLUGIN)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acpc-linear\nVersion: 1.0\n")
        lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
        (info / "entry_points.txt").write_text(f"[acpc.model_families]\n{lines}")
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, "acpc_linear", raising=False)

    return write


def write_linear(root: Path) -> dict[str, Tensor]:
    state = {"encode": torch.randn(12, 4), "act": torch.randn(3, 4)}
    write_checkpoint(root / "run", CONFIG, state)
    return state


def test_plugin_family(tmp_path: Path, install: Install) -> None:
    install(linear="acpc_linear:family")
    state = write_linear(tmp_path / "root")
    model = load_checkpoint(tmp_path / "root", "run", device=CPU)
    assert (model.card.family, model.card.parameter_count) == ("linear", 60)
    latents = model.encode(torch.ones(1, 3, 2, 2))
    rolled = rollout(model, latents[None], torch.ones(1, 2, 3))
    step = state["act"].sum(0)
    start = state["encode"].sum(0)
    torch.testing.assert_close(rolled[0], torch.stack((start + step, start + 2 * step)))


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


@pytest.fixture
def model(tmp_path: Path) -> FrozenWorldModel:
    write_checkpoint(tmp_path / "run")
    return load_checkpoint(tmp_path, "run", device=CPU)


def network() -> JepaModel:
    built = jepa_network(parse_config(JepaConfig, public_config()))
    built.load_state_dict(random_state_dict(public_config()))
    return built


def test_card(model: FrozenWorldModel) -> None:
    card = model.card
    assert isinstance(model, FrozenWorldModel)
    assert (card.family, card.image_size, card.latent_dim) == ("lewm", 28, 16)
    assert (card.history, card.action_block_dim) == (3, 10)
    assert card.parameter_count == sum(p.numel() for p in network().parameters())
    assert len(bytes.fromhex(card.digest)) == 32
    assert model.device == CPU


def test_no_gradients_and_no_training_mode(model: FrozenWorldModel) -> None:
    """Dropout and batch statistics play no part: a call repeats, and rows ignore each other."""
    frames = torch.randn(4, 3, 28, 28, requires_grad=True)
    latents = model.encode(frames)
    assert not latents.requires_grad
    assert torch.equal(latents, model.encode(frames))
    torch.testing.assert_close(model.encode(frames[:1]), latents[:1])
    window, actions = latents[None, :3], model.embed_actions(torch.randn(1, 3, 10))
    assert torch.equal(model.predict_next(window, actions), model.predict_next(window, actions))


def test_a_checkpoint_is_read_without_the_compiler_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which drawing weights would import that are replaced anyway: half a second, tens of MB."""
    monkeypatch.setitem(sys.modules, "torch.fx.experimental.symbolic_shapes", None)
    write_checkpoint(tmp_path / "run")
    assert load_checkpoint(tmp_path, "run", device=CPU).card.family == "lewm"


def test_freezing_ends_training_mode(model: FrozenWorldModel) -> None:
    frozen = FrozenJepa(network().train(), model.card, CPU)
    frames = torch.randn(2, 3, 28, 28)
    torch.testing.assert_close(frozen.encode(frames), model.encode(frames))


def test_predict_next_is_the_last_token_of_predict() -> None:
    model = network().eval()
    for window in (1, 2, 3):
        latents, blocks = torch.randn(5, window, 16), torch.randn(5, window, 10)
        with torch.no_grad():
            actions = model.embed_actions(blocks)
            every = model.predict(latents, actions)
            last = model.predict_next(latents, actions)
        torch.testing.assert_close(last, every[:, -1])


def test_training_step_reaches_every_parameter() -> None:
    """The modules train as they stand, so that checkpoints can be made with them."""
    model = network().train()
    latents = model.encode(torch.randn(6, 3, 28, 28)).view(2, 3, 16)
    actions = model.embed_actions(torch.randn(2, 3, 10))
    (model.predict(latents, actions) - latents.roll(-1, 1)).square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_task_checks_name_both_numbers(model: FrozenWorldModel) -> None:
    check_actions(model.card, frameskip=5, action_dim=2)
    check_history(model.card, 3)
    with pytest.raises(InvalidArgument, match=r"width 8, but .* width 10") as caught:
        check_actions(model.card, frameskip=4, action_dim=2)
    assert caught.value.field == "frameskip"
    with pytest.raises(InvalidArgument, match=r"4 history frames, but .* 1 to 3"):
        check_history(model.card, 4)
    with pytest.raises(InvalidArgument, match="0 history frames"):
        check_history(model.card, 0)


def test_frames_smaller_than_a_patch(model: FrozenWorldModel) -> None:
    with pytest.raises(InvalidArgument, match="height 28 and width 6") as caught:
        model.encode(torch.zeros(1, 3, 28, 6))
    assert caught.value.field == "frames"
