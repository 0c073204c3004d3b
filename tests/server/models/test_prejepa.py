"""PreJEPA checkpoints, written as the public library writes them, against its own classes."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch
from acpc_server.errors import AcpcError, InvalidArgument, UnsafeCheckpoint
from acpc_server.models import (
    FrozenWorldModel,
    check_model,
    load_checkpoint,
    rollout,
    with_proprio,
)
from hostile_folders import DROP, set_at
from public_prejepa import (
    MEDIUM,
    SMALL,
    TINY,
    Sizes,
    public_costs,
    public_prejepa,
    write_prejepa,
)
from torch import Tensor, nn

CPU = torch.device("cpu")
SWAPPED = dataclasses.replace(TINY, slots={"action": (6, 10), "proprio": (4, 10)})
NO_PROPRIO = dataclasses.replace(TINY, slots={"action": (6, 10)})
SHORT = dataclasses.replace(TINY, history=2)


@pytest.fixture(scope="module")
def tiny() -> nn.Module:
    return public_prejepa(TINY)


@pytest.fixture
def root(tmp_path: Path, tiny: nn.Module) -> Path:
    write_prejepa(tmp_path / "run", TINY, tiny)
    return tmp_path


@pytest.fixture
def model(root: Path) -> FrozenWorldModel:
    return load_checkpoint(root, "run", device=CPU)


def inputs(sizes: Sizes, history: int, seed: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    found = {
        "pixels": torch.randn(history, 3, sizes.side, sizes.side, generator=generator),
        "goal": torch.randn(3, sizes.side, sizes.side, generator=generator),
    }
    if "proprio" in sizes.slots:
        found["proprio"] = torch.randn(history, 4, generator=generator)
        found["goal_proprio"] = torch.randn(4, generator=generator)
    return found


def latents(
    model: FrozenWorldModel, info: dict[str, Tensor], key: str, dtype: torch.dtype
) -> Tensor:
    frames = info[key] if key == "pixels" else info[key][None]
    found = model.encode(frames.to(dtype))
    proprio = info.get({"pixels": "proprio", "goal": "goal_proprio"}[key])
    if proprio is None:
        return found
    slots = model.embed_proprio(proprio.reshape(len(found), -1).to(dtype))
    return with_proprio(found, slots)


def off(found: Tensor, wanted: Tensor) -> float:
    assert found.shape == wanted.shape
    return float((found.double() - wanted).abs().max() / wanted.abs().max())


@pytest.mark.process  # importing the public classes takes as long as a file of unit tests
@pytest.mark.parametrize(
    ("sizes", "history", "wide"),
    [
        pytest.param(TINY, 1, False, id="tiny-1"),
        pytest.param(TINY, 3, False, id="tiny-3"),
        pytest.param(TINY, 3, True, id="tiny-fp64"),
        pytest.param(SWAPPED, 2, False, id="swapped"),
        pytest.param(NO_PROPRIO, 3, False, id="no-proprio"),
        pytest.param(SHORT, 2, False, id="short-window"),
        pytest.param(MEDIUM, 3, False, id="medium"),
        pytest.param(SMALL, 2, False, id="dinov2-small", marks=pytest.mark.nightly),
    ],
)
def test_agrees_with_the_public_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: Sizes, wide: bool, history: int
) -> None:
    """Latents, rollouts longer than the window and costs; each patch keeps its own proprio."""
    network = public_prejepa(sizes)
    write_prejepa(tmp_path / "run", sizes, network)
    model = load_checkpoint(tmp_path, "run", device=CPU)
    # Upstream resizes the positions of the backbone in float32, whatever the rest is in.
    tolerance, dtype = (1e-7, torch.float64) if wide else (1e-4, torch.float32)
    if wide:
        model = model.in_float64()
    count, horizon = (2, 2) if sizes is SMALL else (5, 5)
    blocks = torch.randn(count, history + horizon - 1, 6)
    info = inputs(sizes, history)
    wanted = public_costs(network, monkeypatch, info, blocks)

    found = latents(model, info, "pixels", dtype)
    visual = sizes.patches * sizes.backbone["hidden_size"]
    unscaled = found[:, :visual].reshape(history, sizes.patches, -1) * visual**0.5
    assert off(unscaled, wanted["pixels_emb"][0, 0]) <= tolerance

    rolled = rollout(model, found[None].expand(count, -1, -1), blocks.to(dtype))
    predicted = wanted["predicted_pixels_emb"][0, :, history:].flatten(2)
    assert off(rolled[..., :visual] * visual**0.5, predicted) <= tolerance
    if "proprio" in sizes.slots:
        proprio = rolled[..., visual:] * 10**0.5
        assert off(proprio, wanted["predicted_proprio_emb"][0, :, history:]) <= tolerance

    goal = latents(model, info, "goal", dtype)[0]
    costs = (rolled[:, -1] - goal).double().square().sum(dim=1)
    assert off(costs, wanted["cost"][0]) <= tolerance


def test_conforms(tmp_path: Path, model: FrozenWorldModel) -> None:
    write_prejepa(tmp_path / "bare", NO_PROPRIO, public_prejepa(NO_PROPRIO))
    for one in (model, load_checkpoint(tmp_path, "bare", device=CPU)):
        assert not any(check_model(one).values())


def test_frames_must_make_the_predictors_patches(model: FrozenWorldModel) -> None:
    with pytest.raises(InvalidArgument, match=r"3 x 4 patches .* takes 3 x 3; give square"):
        model.encode(torch.zeros(1, 3, 42, 56))


def test_older_names_and_a_backbone_file(
    tmp_path: Path, tiny: nn.Module, model: FrozenWorldModel
) -> None:
    """DINOv2 as Hugging Face publishes it, with the names of transformers 4.x, beside the rest."""
    state = tiny.state_dict()
    old = {"attention.q_proj": "attention.attention.query",
           "attention.k_proj": "attention.attention.key",
           "attention.v_proj": "attention.attention.value",
           "attention.o_proj": "attention.output.dense"}  # fmt: skip

    def renamed(name: str) -> str:
        for new, former in old.items():
            name = name.replace(new, former)
        return name.removeprefix("backbone.")

    apart = {renamed(k): v.contiguous() for k, v in state.items() if k.startswith("backbone.")}
    rest = {k: v for k, v in state.items() if not k.startswith("backbone.")}
    shutil.copytree(tmp_path / "run", tmp_path / "apart")
    (tmp_path / "backbones/tiny").mkdir(parents=True)
    safetensors.torch.save_file(apart, tmp_path / "backbones/tiny/model.safetensors")
    torch.save(rest, tmp_path / "apart/weights.pt")
    options = tmp_path / "apart/acpc.json"
    options.write_text('{"backbone": "backbones/tiny/model.safetensors"}')
    frames = inputs(TINY, 2)["pixels"]
    other = load_checkpoint(tmp_path, "apart", device=CPU)
    assert torch.equal(other.encode(frames), model.encode(frames))
    torch.save(state, tmp_path / "apart/weights.pt")
    with pytest.raises(UnsafeCheckpoint, match=r"backbone\.\S+: stored here, but acpc\.json names"):
        load_checkpoint(tmp_path, "apart", device=CPU)
    unfit = ("../x/model.safetensors", "model.safetensors", "backbones/none/a.pt", 3, "a/b.py")
    for path in (*unfit, "backbones/tiny/\0.pt"):
        options.write_text(json.dumps({"backbone": path}))
        with pytest.raises(AcpcError, match="backbone"):
            load_checkpoint(tmp_path, "apart", device=CPU)


def test_the_weight_of_proprioception(root: Path, model: FrozenWorldModel) -> None:
    """A square of the proprio slot counts as acpc.json says; predictions do not change."""
    (root / "run/acpc.json").write_text('{"proprio_weight": 4.0}')
    heavy = load_checkpoint(root, "run", device=CPU)
    assert heavy.card.digest != model.card.digest
    info, blocks = inputs(TINY, 2), torch.randn(3, 5, 6)
    light, weighed = (
        rollout(x, latents(x, info, "pixels", torch.float32)[None].expand(3, -1, -1), blocks)
        for x in (model, heavy)
    )
    visual = 9 * 24
    assert off(weighed[..., :visual], light[..., :visual].double()) <= 1e-5
    assert off(weighed[..., visual:], 2 * light[..., visual:].double()) <= 1e-5


SLOTS = "extra_encoders.modules"
BACKBONE = {"_target_": "stable_worldmodel.wm.prejepa.module.create_backbone"}
# A key of the config, its value, and words of the answer.
HOSTILE: list[tuple[str, object, str]] = [
    (f"{SLOTS}.action", DROP, r"extra_encoders\.modules: no action slot"),
    ("predictor.dim", 43,
        r"predictor\.dim: 43, but the backbone's width 24 \+ proprio 10 \+ action 10 is 44"),
    ("predictor.num_patches", 8, "num_patches: 8 is no square"),
    ("history_size", 4, "history_size: 4, but the predictor has"),
    (f"{SLOTS}.state", TINY.config["extra_encoders"]["modules"]["action"], rf"{SLOTS}\.state"),
    (f"{SLOTS}.action.in_chans", 7,
        r"extra_encoders\.action\.patch_embed\.weight: shape \(10, 6, 1\), but .* \(10, 7, 1\)"),
    ("encoder", BACKBONE | {"name": "dinov3_small"},
        r"encoder\.name: 'dinov3_small' is not a backbone the server has; nothing was downloaded"),
    ("encoder", {"_target_": "os.system", "name": "true"},
        r"encoder\._target_: 'os\.system' is not a known target"),
    ("encoder.config.num_attention_heads", 5, "5 heads do not divide the width 24"),
    (f"{SLOTS}.action.tubelet_size", 2, rf"{SLOTS}\.action\.tubelet_size"),
    ("decoder", {"_target_": "x"}, "decoder"),
    # A tensor of the weights.
    ("predictor.transformer.layers.1.0.bias", torch.ones(1, 1, 27, 27), "not causal between"),
    ("predictor.transformer.layers.1.0.bias", torch.ones(1, 1, 9, 9), "shape"),
    ("backbone.layernorm.weight", None, "missing"),
    ("backbone.encoder.layer.7.norm1.weight", torch.ones(24), "no such tensor"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "words"), HOSTILE)
def test_hostile_configs_and_weights_are_named(
    root: Path, tiny: nn.Module, key: str, value: object, words: str
) -> None:
    if value is None or isinstance(value, Tensor):
        state = {**tiny.state_dict(), key: value}
        torch.save({k: v for k, v in state.items() if v is not None}, root / "run/weights.pt")
    else:
        config = TINY.config
        set_at(config, key, value)
        (root / "run/config.json").write_text(json.dumps(config))
    with pytest.raises(UnsafeCheckpoint, match=words):
        load_checkpoint(root, "run", device=CPU)
