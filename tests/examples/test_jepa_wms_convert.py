"""The converter of jepa-wms files: what it writes computes what they do, and nothing is run."""

import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from acpc_server.errors import AlreadyExists, UnsafeCheckpoint
from acpc_server.importing.backbones import renamed
from acpc_server.models import (
    FrozenWorldModel,
    TakesProprio,
    Widens,
    load_checkpoint,
    rollout,
    with_proprio,
)
from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD
from dino_wm_reference import DinoWm
from jepa_wm_reference import JepaWm
from jepa_wms import convert, tiny
from payload import Payload, Write, with_parts, with_tensor
from torch import Tensor

CPU = torch.device("cpu")
TINY = tiny.Sizes()
SAME_GRID = tiny.Sizes(trained_grid=3)
NO_PROPRIO = tiny.Sizes(proprio=(0, 0))
WIDER = tiny.Sizes(width=192, trained_grid=6, grid=4, depth=3, heads=3, inner=67)
OVER_DINOV3 = tiny.Sizes(registers=2)
# What the file is called, and the family.
KINDS = {DinoWm: ("dino_wm", "prejepa"), JepaWm: ("jepa_wm", "jepa_wm")}


def training(sizes: tiny.Sizes) -> object:
    return convert.Training(image_size=sizes.grid * sizes.patch, heads=sizes.heads)


@pytest.mark.parametrize("truth", [DinoWm, JepaWm])
@pytest.mark.parametrize(
    ("sizes", "history"),
    [(TINY, 1), (TINY, 2), (SAME_GRID, 2), (NO_PROPRIO, 2), (WIDER, 2), (OVER_DINOV3, 2)],
    ids=["one-frame", "two-frames", "positions-as-stored", "no-proprio", "wider", "dinov3"],
)
def test_computes_what_the_source_describes(
    tmp_path: Path, truth: type[DinoWm | JepaWm], sizes: tiny.Sizes, history: int
) -> None:
    """Latents, rollouts longer than the window, and the cost, against loops in float64."""
    kind, family = KINDS[truth]
    source, backbone = tiny.write(tmp_path / "in", sizes, kind)
    card = convert.convert(source, backbone, tmp_path / "out" / "run", training(sizes))
    model = load_checkpoint(tmp_path / "out", "run", device=CPU)
    assert (model.card.digest, model.card.family) == (card.digest, family)
    assert isinstance(model, Widens)
    wide = model.in_float64()
    generator = torch.Generator().manual_seed(5)
    side = sizes.grid * sizes.patch
    pixels = torch.rand(history, 3, side, side, generator=generator)
    actions = torch.randn(history + 3, sizes.action[0], generator=generator)
    proprio = torch.randn(history, 4, generator=generator) if sizes.proprio[0] else None
    reference = truth(sizes)
    wanted = reference.unroll(reference.encode(pixels), proprio, actions, model.card.history)
    check(model, torch.float32, (pixels, proprio, actions), wanted, 1e-4)
    # Positions and the folded projection are stored in float32.
    check(wide, torch.float64, (pixels, proprio, actions), wanted, 1e-5)


def check(
    model: FrozenWorldModel,
    dtype: torch.dtype,
    inputs: tuple[Tensor, Tensor | None, Tensor],
    wanted: dict[str, Tensor],
    tolerance: float,
) -> None:
    """Every frame and the cost of every step with the first frame as goal."""
    pixels, proprio, actions = inputs
    mean, std = (torch.tensor(x)[:, None, None] for x in (IMAGENET_MEAN, IMAGENET_STD))
    latents = model.encode(((pixels - mean) / std).to(dtype))
    if proprio is not None:
        assert isinstance(model, TakesProprio)
        latents = with_proprio(latents, model.embed_proprio(proprio.to(dtype)))
    found = torch.cat([latents, rollout(model, latents[None], actions[None].to(dtype))[0]])
    patches, width = wanted["visual"].shape[1:]
    visual = patches * width
    unscaled = found[:, :visual].unflatten(1, (patches, width)) * visual**0.5
    assert _off(unscaled, wanted["visual"]) <= tolerance
    terms = [(wanted["visual"][1:] - wanted["visual"][0]).square().mean(dim=(1, 2))]
    if proprio is not None:
        slots = wanted["proprio"].flatten(1)
        assert _off(found[:, visual:] * (slots.shape[1] / 0.1) ** 0.5, slots) <= tolerance
        terms.append(0.1 * (slots[1:] - slots[0]).square().mean(dim=1))
    costs = (found[1:] - found[0]).double().square().sum(dim=1)
    assert _off(costs, torch.stack(terms).sum(dim=0)) <= tolerance


def _off(found: Tensor, wanted: Tensor) -> float:
    assert found.shape == wanted.shape
    return float((found.double() - wanted).abs().max() / wanted.abs().max())


def test_reads_the_backbone_under_either_name(tmp_path: Path) -> None:
    """A file of transformers' names gives the folder that DINOv2's own file gives."""
    source, backbone = tiny.write(tmp_path / "in", SAME_GRID)
    wanted = convert.convert(source, backbone, tmp_path / "a", training(SAME_GRID))
    named = renamed(tiny.backbone_state(SAME_GRID))
    other = tmp_path / "model.safetensors"
    safetensors.torch.save_file({key: part.contiguous() for key, part in named.items()}, other)
    found = convert.convert(source, other, tmp_path / "b", training(SAME_GRID))
    assert found.digest == wanted.digest


def _edited(kind: str = "dino_wm", **parts: object) -> Write:
    return with_parts(lambda: tiny.checkpoint(TINY, kind), **parts)


def _tensor_in(part: str, name: str, value: object, kind: str = "dino_wm") -> Write:
    return with_tensor(lambda: tiny.checkpoint(TINY, kind), part, name, value)


def _pickled(path: Path, payload: Payload) -> None:
    path.write_bytes(pickle.dumps({"predictor": payload}))


def _tarred(path: Path, payload: Payload) -> None:
    inner = path.with_suffix(".pkl")
    inner.write_bytes(pickle.dumps(payload))
    with tarfile.open(path, "w") as archive:
        archive.add(inner, "data.pkl")


def _cut(path: Path, payload: Payload) -> None:
    torch.save(tiny.checkpoint(TINY), path)
    path.write_bytes(path.read_bytes()[:-200])


def _module(path: Path, payload: Payload) -> None:
    torch.save(torch.nn.Linear(2, 2), path)


UNKNOWN = "the network has no such tensor"
OTHER_WIDTH = "predictor.embed_dim: 96, but the backbone's width is 128"
LAYER, GATE = "module.transformer.layers.0", "predictor_blocks.1.adaLN_modulation.1"
HOSTILE = {
    "payload-for-a-part": (_edited(predictor=Payload), "posix.system"),
    "payload-in-the-optimizer": (_edited(opt={"state": [Payload]}, scaler=Payload), "pickled"),
    "payload-as-the-epoch": (_edited(epoch=Payload), "posix.system"),
    "plain-pickle": (_pickled, "not an archive of torch.save"),
    "tar": (_tarred, "not an archive of torch.save"),
    "cut-short": (_cut, "damaged"),
    "whole-module": (_module, "pickled Python object"),
    "no-predictor": (_edited(predictor=...), "not a jepa-wms checkpoint"),
    "no-action-encoder": (_edited(action_encoder=...), "no 'action_encoder'"),
    "another-part": (_edited(encoder={}), "holds encoder"),
    "adaln-alone": (
        _edited(predictor={"predictor_blocks.0.adaLN_modulation.1.weight": torch.ones(1)}),
        "no predictor_embed.weight; not a JEPA-WM predictor",
    ),
    "vjepa2-ac": (
        _edited(predictor={"predictor_embed.weight": torch.ones(1)}),
        "the predictor of V-JEPA 2-AC",
    ),
    "mlp-encoder": (
        _tensor_in("action_encoder", "module.mlp.0.weight", torch.ones(1)), UNKNOWN
    ),
    "jepa-proprio-tokens": (
        _edited("jepa_wm", proprio_encoder={
            "patch_embed.weight": torch.ones(46, 4, 1), "patch_embed.bias": torch.ones(46),
        }),
        "but the config wants",
    ),
    "jepa-actions-beside": (
        _edited("jepa_wm", action_encoder={"patch_embed.weight": torch.ones(54, 6, 1)}), UNKNOWN
    ),
}  # fmt: skip
# A tensor of the predictor, what is put in its place, and what is said.
TENSORS: dict[str, tuple[str, object, str]] = {
    "payload-for-a-tensor": ("module.x", Payload, "posix.system"),
    "text-for-a-tensor": ("module.x", "x", "a str, not a tensor"),
    "unknown-tensor": ("module.more", torch.ones(1), UNKNOWN),
    "other-shape": ("module.pos_embedding", torch.ones(1, 28, 146), "no whole frames"),
    "flat-positions": ("module.pos_embedding", torch.ones(27), "other axes"),
    "not-finite": ("module.transformer.norm.bias", torch.full((146,), torch.nan), "not finite"),
    "two-of-one-name": (
        "transformer.norm.bias",
        torch.ones(146),
        "have one name without 'module.'",
    ),
    "no-axes": (f"{LAYER}.1.net.1.weight", torch.tensor(1.0), "other axes"),
    "mask-not-causal": (f"{LAYER}.0.bias", torch.ones(1, 1, 27, 27), "not causal between frames"),
}
JEPA: dict[str, tuple[str, object, str]] = {
    "payload": ("x", Payload, "posix.system"),
    "over-dinov3": ("predictor_embed.weight", torch.ones(46, 1024), "is DINOv3 ViT-L/16"),
    "over-another-backbone": ("predictor_embed.weight", torch.ones(46, 96), OTHER_WIDTH),
    "without-actions": ("action_encoder.weight", ..., "no action_encoder"),
    "flat-map": ("action_encoder.weight", torch.ones(9), "maps have other axes"),
    "heads": ("predictor_embed.weight", torch.ones(47, 128), "2 heads do not divide the width 55"),
    "missing-gate": (f"{GATE}.bias", ..., f"predictor.{GATE}.bias: missing"),
    "not-finite": ("predictor_norm.bias", torch.full((54,), torch.inf), "not finite"),
}
HOSTILE |= {
    name: (_tensor_in("predictor", tensor, value), words)
    for name, (tensor, value, words) in TENSORS.items()
} | {
    f"jepa-{name}": (_tensor_in("predictor", f"module.{tensor}", value, "jepa_wm"), words)
    for name, (tensor, value, words) in JEPA.items()
}


@pytest.mark.parametrize("case", HOSTILE)
def test_runs_nothing_and_says_why(case: str, tmp_path: Path) -> None:
    write, reason = HOSTILE[case]
    source, backbone = tiny.write(tmp_path, TINY)
    write(source, Payload(tmp_path / "EXECUTED"))
    with pytest.raises(UnsafeCheckpoint) as caught:
        convert.convert(source, backbone, tmp_path / "out" / "run", training(TINY))
    assert reason in str(caught.value)
    assert not (tmp_path / "EXECUTED").exists()
    assert not [*tmp_path.glob("out/*")]


def test_runs_nothing_of_the_backbone_either(tmp_path: Path) -> None:
    source, backbone = tiny.write(tmp_path, TINY)
    torch.save({"cls_token": Payload(tmp_path / "EXECUTED")}, backbone)
    with pytest.raises(UnsafeCheckpoint, match=r"posix\.system"):
        convert.convert(source, backbone, tmp_path / "run", training(TINY))
    assert not (tmp_path / "EXECUTED").exists()


QKV = "blocks.0.attn.qkv.bias"
BACKBONES = (
    (OVER_DINOV3, {"rope_embed.periods": torch.ones(16)}, r"rope_embed\.periods are not those of"),
    (OVER_DINOV3, {"rope_embed.periods": torch.ones(0)}, r"rope_embed\.periods are not those of"),
    (OVER_DINOV3, {"rope_embed.periods": None}, r"no embeddings\.position_embeddings of 3 axes"),
    (OVER_DINOV3, {"blocks.0.mlp.fc1.weight": None}, r"no encoder\.layer\.0\.mlp\.fc1\.weight"),
    (OVER_DINOV3, {f"{QKV}_mask": torch.ones(3)}, "not that of queries, keys and values"),
    (TINY, {"cls_token": None, "patch_embed.proj.weight": None}, "as DINOv2 or DINOv3 publish"),
    (TINY, {QKV: torch.tensor(1.0)}, "not that of queries, keys and values"),
    (TINY, {QKV: torch.ones(1)}, "not that of queries, keys and values"),
    (TINY, {"patch_embed.proj.bias": torch.ones(3)}, "RGB is wanted"),
    (TINY, {"pos_embed": torch.ones(1, 26, 128, dtype=torch.complex64)}, "not floating point"),
    (TINY, {"embeddings.cls_token": torch.ones(1, 1, 128)}, "there under two names"),
)


@pytest.mark.parametrize(("sizes", "changes", "words"), BACKBONES)
def test_a_damaged_backbone_is_named(
    sizes: Any,  # noqa: ANN401 - of a script
    changes: dict[str, torch.Tensor | None],
    words: str,
    tmp_path: Path,
) -> None:
    source, backbone = tiny.write(tmp_path, TINY)
    state = tiny.backbone_state(sizes) | changes
    torch.save({name: part for name, part in state.items() if part is not None}, backbone)
    with pytest.raises(UnsafeCheckpoint, match=words):
        convert.convert(source, backbone, tmp_path / "out" / "run", training(TINY))
    assert not [*tmp_path.glob("out/*")]


def test_the_payload_would_run(tmp_path: Path) -> None:
    """Otherwise the tests above would prove nothing."""
    pickle.loads(pickle.dumps(Payload(tmp_path / "EXECUTED")))  # noqa: S301  our own bytes
    assert (tmp_path / "EXECUTED").exists()


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, backbone = tiny.write(tmp_path, TINY)
    asked = [str(source), "--backbone", str(backbone), "--out", str(tmp_path / "run")]
    assert convert.main([*asked, "--image-size", "12", "--proprio-weight", "0.5"]) == 0
    assert "prejepa" in capsys.readouterr().out
    options = json.loads((tmp_path / "run" / "acpc.json").read_text())
    assert options == {"proprio_weight": 0.5, "proprio_patches": "every"}
    assert convert.main([*asked, "--image-size", "12"]) == 1
    assert "name a new folder" in capsys.readouterr().err
    with pytest.raises(AlreadyExists):
        convert.convert(source, backbone, tmp_path / "run", training(TINY))
    missing = ["gone.pth.tar", *asked[1:3], "--out", str(tmp_path / "other")]
    assert convert.main(missing) == 1
    assert "gone.pth.tar" in capsys.readouterr().err
