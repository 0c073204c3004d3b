"""JEPA-WM folders as the example's converter writes them; their numbers are compared there."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from acpc_server.errors import UnsafeCheckpoint
from acpc_server.models import FrozenWorldModel, check_model, load_checkpoint
from jepa_wms import convert, tiny

CPU = torch.device("cpu")
TINY = tiny.Sizes()
NO_PROPRIO = tiny.Sizes(proprio=(0, 0))


def written(root: Path, sizes: tiny.Sizes) -> Path:
    source, backbone = tiny.write(root / "in", sizes, "jepa_wm")
    convert.convert(source, backbone, root / "run", convert.Training(image_size=12, heads=2))
    return root / "run"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("tiny"), TINY)


def loaded(path: Path) -> FrozenWorldModel:
    return load_checkpoint(path.parent, path.name, device=CPU)


def test_conforms_without_proprioception(tmp_path: Path) -> None:
    assert [x for x in check_model(loaded(written(tmp_path, NO_PROPRIO))) if not x.kept] == []


def test_the_card(folder: Path) -> None:
    card = loaded(folder).card
    assert (card.family, card.image_size, card.latent_tokens, card.history) == ("jepa_wm", 12, 9, 2)
    assert (card.latent_dim, card.proprio_dim, card.action_block_dim) == (9 * (128 + 8), 4, 6)


def test_a_backbone_file_may_stand_beside(folder: Path, tmp_path: Path) -> None:
    """With the token of masked training in it, as Hugging Face publishes DINOv2."""
    shutil.copytree(folder, tmp_path / "run")
    weights = tmp_path / "run/weights.safetensors"
    state = safetensors.torch.load_file(weights)
    apart = {k.removeprefix("backbone."): v for k, v in state.items() if k.startswith("backbone.")}
    apart["embeddings.mask_token"] = torch.ones(1, 128)
    (tmp_path / "dinov2").mkdir()
    safetensors.torch.save_file(apart, tmp_path / "dinov2/model.safetensors")
    rest = {k: v for k, v in state.items() if not k.startswith("backbone.")}
    safetensors.torch.save_file(rest, weights)
    (tmp_path / "run/acpc.json").write_text('{"backbone": "dinov2/model.safetensors"}')
    frames = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    assert torch.equal(loaded(tmp_path / "run").encode(frames), loaded(folder).encode(frames))


def test_bfloat16(folder: Path) -> None:
    """The reduced model's step is the whole one's up to bfloat16's rounding."""
    model = loaded(folder)
    latents = model.encode(torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(0)))
    window, blocks = latents.reshape(2, 2, -1), torch.ones(2, 2, 6)
    wanted = model.predict_next(window, model.embed_actions(blocks))
    with torch.autocast("cpu", torch.bfloat16):
        small = model.in_bfloat16()
        found = small.predict_next(window, small.embed_actions(blocks))
    assert float((found - wanted).norm() / wanted.norm()) <= 0.1


DINOV3 = {"_target_": "transformers.DINOv3ViTConfig", "hidden_size": 128, "num_attention_heads": 3}
HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "window": (
        lambda c: c.update(ctxt_window=5),
        r"ctxt_window: 5, but .* predictor\.num_frames = 4",
    ),
    "heads": (lambda c: c["predictor"].update(num_heads=4), "4 heads do not divide the width 54"),
    "size": (lambda c: c.update(img_size=14), "14 is no whole patches of 4 pixels"),
    "frames": (lambda c: c.update(img_size=16384), "frames of 16384 pixels"),
    "attention": (
        lambda c: c.update(img_size=400),
        "20000 patches in the predictor's window; the server takes up to 4096 and 16384",
    ),
    "width": (lambda c: c["predictor"].update(embed_dim=96), "96, but the backbone's width is 128"),
    "half": (
        lambda c: c["predictor"].pop("proprio_dim"),
        "proprio_emb_dim: stands with proprio_dim, or both are absent",
    ),
    "other predictor": (
        lambda c: c["predictor"].update(_target_="os.system"),
        r"predictor\._target_: .*os\.system",
    ),
    "other encoder": (
        lambda c: c.update(encoder={"_target_": "os.system"}),
        r"encoder\._target_: 'os\.system' is not a known target",
    ),
    "heads of DINOv3": (
        lambda c: c.update(encoder={"_target_": "transformers.DINOv3ViTModel", "config": DINOV3}),
        "3 heads of a multiple of 4 coordinates do not divide the width 128",
    ),
    "unknown key": (lambda c: c.update(normalize_reps=True), "normalize_reps"),
    "depth": (lambda c: c["predictor"].update(depth=3), r"predictor_blocks\.2\..* missing"),
}


def changed(folder: Path, into: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    shutil.copytree(folder, into / "run")
    config = json.loads((folder / "config.json").read_text())
    edit(config)
    (into / "run" / "config.json").write_text(json.dumps(config))
    return into / "run"


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_configs_are_named(folder: Path, tmp_path: Path, what: str) -> None:
    edit, words = HOSTILE[what]
    path = changed(folder, tmp_path, edit)
    with pytest.raises(UnsafeCheckpoint, match=words):
        loaded(path)


def test_parameters_are_counted_before_memory_is_taken(folder: Path, tmp_path: Path) -> None:
    """More than a hundred billion of them."""
    huge = {"predictor_embed_dim": 16376, "depth": 64}
    path = changed(folder, tmp_path, lambda c: c["predictor"].update(huge))
    with pytest.raises(UnsafeCheckpoint, match="above the limit"):
        loaded(path)
