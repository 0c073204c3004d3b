"""Loaded checkpoints against the float64 forward."""

import copy
from collections.abc import Callable
from pathlib import Path

import jepa_reference as reference
import pytest
import torch
from acpc_server.models import FrozenWorldModel, load_checkpoint, rollout
from beartype.roar import BeartypeCallHintViolation
from public_checkpoint import Config, public_config, random_state_dict, write_checkpoint
from torch import Tensor, nn

CPU = torch.device("cpu")
Edit = Callable[[Config], None]
State = dict[str, Tensor]


def other_widths(config: Config) -> None:
    """Input, condition and output projections; a single head as wide as the tokens."""
    config["predictor"] |= {"hidden_dim": 12, "output_dim": 20, "heads": 1, "dim_head": 12}
    config["pred_proj"]["input_dim"] = 20
    config["action_encoder"] |= {"smoothed_dim": 6, "mlp_scale": 2}


def layer_norm_heads(config: Config) -> None:
    for head in ("projector", "pred_proj"):
        del config[head]["norm_fn"]


def no_heads(config: Config) -> None:
    """Identity projections, one absent and one written out."""
    config["encoder"]["hidden_size"] = 24
    config["predictor"] |= {"input_dim": 24, "hidden_dim": 16, "output_dim": 24}
    config["action_encoder"]["emb_dim"] = 24
    del config["projector"]
    config["pred_proj"] = None


def mask_token(config: Config) -> None:
    del config["encoder"]["use_mask_token"]


def plain(_config: Config) -> None:
    """As it is published."""


# Each with frames of another size, whole patches or not, fewer than those of training or more.
VARIANTS: list[tuple[Edit, tuple[int, int]]] = [
    (plain, (28, 35)), (other_widths, (35, 39)), (layer_norm_heads, (16, 64)),
    (no_heads, (8, 8)), (mask_token, (64, 24)),
]  # fmt: skip


def load_pair(
    root: Path, config: Config, stored: State | None = None
) -> tuple[FrozenWorldModel, State]:
    stored = stored or random_state_dict(config)
    write_checkpoint(root / "run", config, stored)
    model = load_checkpoint(root, "run", device=CPU)
    return model, {name: tensor.double() for name, tensor in stored.items()}


def rolled(state: State, config: Config, history: Tensor, blocks: Tensor) -> Tensor:
    pairs = zip(history.double(), blocks.double(), strict=True)
    return torch.stack([reference.rollout(state, config, h, b) for h, b in pairs])


def relative_error(found: Tensor, wanted: Tensor) -> float:
    assert found.shape == wanted.shape
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("family", ["lewm", "pldm"])
@pytest.mark.parametrize(("edit", "size"), VARIANTS)
def test_small_models(tmp_path: Path, family: str, edit: Edit, size: tuple[int, int]) -> None:
    config = public_config(family=family, block_dim=6)
    edit(config)
    model, state = load_pair(tmp_path, config)
    assert model.card.family == family
    generator = torch.Generator().manual_seed(1)
    frames = torch.randn(3, 3, *size, generator=generator)
    blocks = torch.randn(2, 7, 6, generator=generator)

    latents = model.encode(frames)
    wanted = reference.encode(state, config, frames.double())
    assert relative_error(latents, wanted) <= 1e-5
    assert not torch.allclose(wanted[0], wanted[1], rtol=0.05)

    actions = model.embed_actions(blocks)
    assert relative_error(actions, reference.embed(state, blocks.double())) <= 1e-5

    history = torch.randn(2, 3, model.card.latent_dim, generator=generator)
    wanted = rolled(state, config, history, blocks)
    assert relative_error(rollout(model, history, blocks), wanted) <= 1e-5
    with pytest.raises(BeartypeCallHintViolation):  # annotations are run
        model.network.encoder(torch.randn(1, 4, 28, 28))


def make_faint(state: dict[str, Tensor]) -> None:
    """Bring the variance in front of every normalisation near its epsilon, where it shows."""
    faint = ("embeddings", "o_proj", "mlp.fc2", "pos_embedding", "adaLN", "net.0.", "running_")
    for name, tensor in state.items():
        if any(part in name for part in faint) and not name.endswith("mlp.net.0.weight"):
            tensor.mul_(1e-3 if "running_var" not in name else 1e-5)
        if name.endswith("adaLN_modulation.1.bias"):
            width = len(tensor) // 6
            tensor[width : 2 * width] = tensor[4 * width : 5 * width] = -1 + 1e-3


@pytest.mark.parametrize("edit", [plain, layer_norm_heads])
def test_every_epsilon_counts(tmp_path: Path, edit: Edit) -> None:
    """A normalisation with another epsilon would be far outside the tolerance here."""
    config = public_config()
    edit(config)
    stored = random_state_dict(config)
    make_faint(stored)
    model, state = load_pair(tmp_path, config, stored)
    generator = torch.Generator().manual_seed(4)
    frames = torch.randn(2, 3, 28, 28, generator=generator)
    wanted = reference.encode(state, config, frames.double())
    assert relative_error(model.encode(frames), wanted) <= 1e-5
    history = 1e-3 * torch.randn(1, 3, 16, generator=generator)
    blocks = torch.randn(1, 3, 10, generator=generator)
    wanted = rolled(state, config, history, blocks)
    assert relative_error(rollout(model, history, blocks), wanted) <= 1e-5


@pytest.mark.parametrize("norm", [None, "torch.nn.LayerNorm", "torch.nn.BatchNorm1d"])
@pytest.mark.parametrize("activation", ["GELU", "ReLU", "SiLU"])
def test_factories(tmp_path: Path, norm: str | None, activation: str) -> None:
    config = public_config()
    factory = norm and {"_target_": norm, "_partial_": True, "eps": 0.25}
    act = {"_target_": f"torch.nn.{activation}", "_partial_": True}
    config["projector"] |= {"norm_fn": factory, "act_fn": act}
    state = random_state_dict(config)
    if norm is None:
        state = {k: v for k, v in state.items() if not k.startswith("projector.net.1.")}
    model, doubles = load_pair(tmp_path, config, state)
    head = nn.Sequential(
        nn.Linear(24, 32),
        {None: nn.Identity(), "torch.nn.LayerNorm": nn.LayerNorm(32, eps=0.25)}.get(
            norm, nn.BatchNorm1d(32, eps=0.25)
        ),
        getattr(nn, activation)(),
        nn.Linear(32, 16),
    ).eval()
    prefix = "projector.net."
    head.load_state_dict({k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)})
    frames = torch.randn(2, 3, 28, 28)
    cls = reference.cls_tokens(doubles, config["encoder"], frames.double())
    with torch.no_grad():
        wanted = head.double()(cls)
    assert relative_error(model.encode(frames), wanted) < 1e-5


@pytest.mark.slow
def test_paper_size(tmp_path: Path) -> None:
    config = public_config("paper")
    model, state = load_pair(tmp_path, config)
    assert len(state) == 303
    assert model.card.parameter_count == 18_034_478
    generator = torch.Generator().manual_seed(2)
    frame = torch.randn(1, 3, 224, 224, generator=generator)
    latent = model.encode(frame)
    assert relative_error(latent, reference.encode(state, config, frame.double())) <= 1e-5
    blocks = torch.randn(1, 2, 10, generator=generator)
    wanted = rolled(state, config, latent[None], blocks)
    assert relative_error(rollout(model, latent[None], blocks), wanted) <= 1e-5


def test_a_copy_of_a_frozen_network_trains(tmp_path: Path) -> None:
    """Its joined maps of attention serve as long as it is frozen."""
    model, _ = load_pair(tmp_path, public_config())
    frozen, frames = model.network, torch.randn(2, 3, 28, 28)
    trained = copy.deepcopy(frozen).train().requires_grad_(True)
    attention = trained.encoder.layers[0].attention
    trained.encoder(frames).sum().backward()
    assert float(attention.q_proj.weight.grad.abs().sum()) > 0
    with torch.no_grad():
        attention.v_proj.weight.add_(1.0)
        assert not torch.allclose(trained.encoder(frames), frozen.encoder(frames))
