"""What training writes with the public classes, read as data: the same tensors, the same model."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import paper_runs
import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint
from acpc_server import save_checkpoint
from acpc_server.cli import app
from acpc_server.errors import AcpcError, InvalidArgument
from acpc_server.importing import find_run
from acpc_server.importing.reading import read_run
from acpc_server.models import VIT_SIZES, load_checkpoint
from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD
from dino_wm_reference import DinoWm, Sizes, backbone_state
from paper_runs import (
    FLAT,
    Family,
    Wrapping,
    lightning_file,
    paper_classes,
    tree_config,
    world_model,
    wrapped,
)
from public_checkpoint import public_config, random_state_dict, with_old_names, write_checkpoint
from public_library import public_module
from torch import Tensor, nn
from typer.testing import CliRunner, Result

pytestmark = pytest.mark.process  # loads transformers and Lightning
CPU = torch.device("cpu")
FILES = Path(__file__).with_name("files")


@pytest.fixture(autouse=True)
def released_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """``encoder_scale: tiny`` is as small as the models here."""
    monkeypatch.setitem(VIT_SIZES, "tiny", paper_runs.TINY)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["import", *map(str, arguments)])


def imported(*arguments: object) -> Path:
    done = run(*arguments)
    assert done.exit_code == 0, done.output + repr(done.exception)
    return Path(str(arguments[-1]))


def rejected(*arguments: object) -> str:
    """The message of an import that is turned down and leaves nothing behind."""
    target = Path(str(arguments[-1]))
    done = run(*arguments)
    assert done.exit_code == 1
    assert not target.exists()
    assert not [x for x in target.parent.iterdir() if x.name.startswith("tmp")]
    return str(done.exception)


def source(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "source.json").read_text())
    return told


def check_same(folder: Path, model: Any, weights: str = "") -> None:
    """Latents and predictions are the public class's, in float64 and in float32."""
    loaded = load_checkpoint(folder.parent, folder.name, weights, device=CPU)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        ours: Any = loaded.in_float64() if dtype is torch.float64 else loaded
        theirs = model.to(dtype)
        torch.manual_seed(3)
        frames, blocks = torch.randn(2, 3, 3, 28, 39), torch.randn(2, 3, 10)
        with torch.no_grad():
            info = theirs.encode({"pixels": frames.to(dtype)})
            actions = public_actions(theirs, blocks.to(dtype))
            wanted = theirs.predict(info["emb"], actions)[:, -1]
            latents = ours.encode(frames.to(dtype).flatten(0, 1)).unflatten(0, (2, 3))
            found = ours.predict_next(latents, ours.embed_actions(blocks.to(dtype)))
        torch.testing.assert_close(latents, info["emb"], rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def public_actions(model: Any, blocks: Tensor) -> Tensor:
    """The public embedder's arithmetic in the type of its weights; it casts to float32 itself."""
    embedder = model.action_encoder
    return embedder.embed(embedder.patch_embed(blocks.mT).mT)


@pytest.mark.parametrize(
    ("wrapping", "family", "old"),
    [
        *((wrapping, "lewm", True) for wrapping in ("bare", "training", "parallel")),
        *((wrapping, "pldm", False) for wrapping in ("parallel", "compiled", "dict")),
        ("bare", "lewm", False), ("training", "pldm", True), ("dict", "pldm", True),
    ],
)  # fmt: skip
def test_an_object_is_the_model_that_was_pickled(
    tmp_path: Path, family: Family, wrapping: Wrapping, old: bool
) -> None:
    path = tmp_path / "run_epoch_3_object.ckpt"
    with paper_classes(family):
        model = world_model(family, old=old)
        beside = "idm" if family == "pldm" else "sigreg"
        torch.save(wrapped(model, wrapping, beside), path)
        (file,) = read_run(find_run(path))
        held, wanted = file.tensors(), model.state_dict()
        assert [*held] == [*wanted]
        assert all(torch.equal(held[name], wanted[name]) for name in wanted)
        folder = imported(path, "--frameskip", 5, tmp_path / "new")
        told = source(folder)
        known = not old or wrapping == "training"  # jepa.JEPA alone does not say
        assert told["family"] == (family if known else "lewm")
        assert told["numbers"]["action_dim"] == {"value": 2, "from": "10 / frameskip"}
        assert [*told["weights"]] == ["weights_epoch_3.pt"]
        check_same(folder, model)
        if isinstance(whole := wrapped(model.float(), wrapping, beside), nn.Module):
            save_checkpoint(whole, tmp_path / "saved")
            config = (tmp_path / "saved/config.json").read_bytes()
            assert config == (folder / "config.json").read_bytes()
            check_same(tmp_path / "saved", model)


def test_a_run_of_the_paper_is_one_folder(tmp_path: Path) -> None:
    model = paper_runs.paper_run(tmp_path / "run")
    shown = run(tmp_path / "run", tmp_path / "new", "--dry-run")
    assert "config.yaml, predictor.heads" not in shown.output  # the object said so first
    assert "frameskip" in shown.output and "nothing was written" in shown.output
    assert not (tmp_path / "new").exists()
    folder = imported(tmp_path / "run", tmp_path / "new")
    names = ["config.json", "source.json", "weights_epoch_1.pt", "weights_epoch_2.pt"]
    assert sorted(x.name for x in folder.iterdir()) == names
    told = source(folder)
    assert told["augmentation"] == FLAT["image_noise"]
    assert told["numbers"]["frameskip"] == {
        "value": 5, "from": "config.yaml, data.dataset.frameskip"
    }  # fmt: skip
    assert told["weights"]["weights_epoch_2.pt"]["same_tensors"] == ["lewm_weights.ckpt"]
    check_same(folder, model, "weights_epoch_2.pt")
    with pytest.raises(Exception, match="2 weights files"):
        load_checkpoint(tmp_path, "new", device=CPU)
    assert "exists; name a new folder" in str(run(tmp_path / "run", folder).exception)


@pytest.mark.parametrize("config", [FLAT, tree_config()], ids=["flat", "tree"])
@pytest.mark.parametrize("lightning", [False, True])
def test_weights_alone_take_their_numbers_from_the_config(
    tmp_path: Path, config: dict[str, Any], lightning: bool
) -> None:
    """Newer code keeps the config in another folder than the weights."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "config.yaml").write_text(json.dumps(config))
    model, path = world_model(), tmp_path / "lewm_weights.ckpt"
    if lightning:
        lightning_file(model, path, "idm")
    else:
        torch.save(model.state_dict(), path)
    assert "config.yaml with --config" in rejected(path, "--frameskip", 5, tmp_path / "new")
    options = ["--config", tmp_path / "job" / "config.yaml"]
    folder = imported(path, *options, tmp_path / "new")
    assert source(folder)["family"] == ("pldm" if lightning else "lewm")
    check_same(folder, model)


@pytest.mark.parametrize("key", ["current_model_state", "callbacks.EMA.ema_state_dict"])
def test_a_file_of_several_weights_says_which_were_taken(tmp_path: Path, key: str) -> None:
    """Lightning's WeightAveraging puts the average into state_dict; older callbacks nest it."""
    model, other, path = world_model(), world_model(seed=1), tmp_path / "lewm.ckpt"
    states = [{f"model.{k}": x for k, x in one.state_dict().items()} for one in (model, other)]
    stored: dict[str, Any] = {"epoch": 3, "state_dict": states[0]}
    *steps, last = key.split(".")
    place = stored
    for step in steps:
        place = place.setdefault(step, {})
    place[last] = states[1]
    torch.save(stored, path)
    (tmp_path / "config.yaml").write_text(json.dumps(FLAT))
    done = run(path, tmp_path / "first")
    said = f"takes the weights at state_dict; it also holds {key}, which --weights-key takes"
    assert said in done.output
    assert source(tmp_path / "first")["weights"]["weights.pt"]["left_out"] == [key]
    check_same(tmp_path / "first", model)
    folder = imported(path, "--weights-key", key, tmp_path / "second")
    assert source(folder)["weights"]["weights.pt"]["lies_at"] == key
    check_same(folder, other)
    assert "no dict at 'nowhere'" in rejected(path, "--weights-key", "nowhere", tmp_path / "third")


@pytest.mark.parametrize(
    ("lightning", "inside"),
    [(False, ""), (False, "weights"), (True, ""), (True, "checkpoints/epoch=0-step=10.ckpt")],
)
def test_a_distributed_checkpoint_is_named_with_what_makes_one_file_of_it(
    tmp_path: Path, lightning: bool, inside: str
) -> None:
    folder, model = tmp_path / "sharded" / inside, world_model()
    torch.distributed.checkpoint.save(model.state_dict(), checkpoint_id=folder)
    if lightning:
        torch.save({"epoch": 1}, folder / "meta.pt")
    told = rejected(tmp_path / "sharded", tmp_path / "new")
    assert f"{folder} is a distributed checkpoint" in told
    command = told.partition("import that: ")[2].split()
    assert command[:2] == ["python", "-m"]
    assert find_spec(command[2]) is not None and command[2].startswith("lightning") == lightning
    if not lightning and not inside:
        subprocess.run([sys.executable, *command[1:]], cwd=tmp_path, check=True)
        (tmp_path / "config.yaml").write_text(json.dumps(FLAT))
        check_same(imported(f"{folder}.pt", tmp_path / "new"), model)


def test_a_file_above_the_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(public_config()))
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(6 << 30)
    assert "above the limit" in rejected(tmp_path / "model.safetensors", tmp_path / "new")


def test_names_of_a_file_reach_the_terminal_escaped(tmp_path: Path) -> None:
    torch.save({"state_dict": {"\x1b[2Jname": torch.ones(1)}}, tmp_path / "a.pt")
    runs = tmp_path / "runs" / "\x1b]0;title\x07"
    runs.mkdir(parents=True)
    (tmp_path / "a.pt").rename(runs / "a.pt")
    done = run("--all", tmp_path / "runs", tmp_path / "new")
    assert done.exit_code == 1
    assert "\x1b" not in done.output + done.stderr and r"\x1b]0;title" in done.output


def test_shards_are_named_as_such(tmp_path: Path) -> None:
    place = write_checkpoint(tmp_path / "run")
    (place / "weights.pt").unlink()
    for number in (1, 2):
        shard = place / f"model-0000{number}-of-00002.safetensors"
        safetensors.torch.save_file({"a": torch.ones(1)}, shard)
    for given in (place, shard):
        told = rejected(given, tmp_path / "new")
        assert "-of-00002.safetensors" in told
        assert "save all their tensors in one file" in told


def _damage(model: nn.Module, path: str, name: str, value: object) -> nn.Module:
    setattr(model.get_submodule(path), name, value)
    return model


EDITS: dict[str, tuple[Callable[[Any], object], str]] = {
    "tanh GELU": (
        lambda m: _damage(m, "predictor.transformer.layers.0.mlp.net.2", "approximate", "tanh"),
        "approximated by 'tanh'",
    ),
    "eps": (lambda m: _damage(m, "predictor.transformer.layers.1.norm1", "eps", 1e-5), "not 1e-06"),
    "encoder eps": (lambda m: _damage(m, "encoder.layernorm", "eps", 1e-6), "layer_norm_eps is"),
    "scale": (lambda m: _damage(m, "predictor.transformer.layers.0.attn", "scale", 0.3), "scale"),
    "class": (lambda m: setattr(m, "projector", nn.Sequential(nn.Linear(24, 16))), "not a MLP"),
    "act": (lambda m: setattr(m.projector.net, "2", nn.Tanh()), "net.2 is a"),
    "hidden_act": (lambda m: setattr(m.encoder.config, "hidden_act", "gelu_new"), "hidden_act"),
    "expanded": (
        lambda m: setattr(m.encoder.layernorm, "weight", nn.Parameter(torch.ones(1).expand(24))),
        "expanded",
    ),
    "no encoder": (lambda m: delattr(m, "encoder"), "without a module of children"),
}


@pytest.mark.parametrize("what", EDITS)
def test_what_the_server_would_compute_otherwise_is_turned_down(tmp_path: Path, what: str) -> None:
    edit, words = EDITS[what]
    model = world_model()
    edit(model)
    torch.save(model, tmp_path / "a_object.ckpt")
    assert words in rejected(tmp_path / "a_object.ckpt", "--frameskip", 5, tmp_path / "new")
    if what == "expanded":  # which is a matter of files
        save_checkpoint(model, tmp_path / "new")
        return
    with pytest.raises(AcpcError, match=words.replace("without a module of", "without")):
        save_checkpoint(model, tmp_path / "new")
    assert [x.name for x in tmp_path.iterdir()] == ["a_object.ckpt"]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (lambda model: model.state_dict(), "found a collections.OrderedDict without children"),
        (type, "found a builtins.type without children"),
        (lambda _: None, "found a builtins.NoneType without children"),
        (lambda model: model.to("meta"), "found tensors of the meta device"),
    ],
)
def test_what_is_no_model_in_memory_is_said(
    what: Callable[[nn.Module], Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgument, match=f"model: {words}"):
        save_checkpoint(what(world_model()), tmp_path / "new")
    assert not [*tmp_path.iterdir()]


CONFLICTS: dict[str, tuple[dict[str, Any], list[object], str]] = {
    "heads": ({"predictor": {"heads": 4}}, [], "predictor.heads is 2 by the object, but 4 by"),
    "frameskip": (
        {"data": {"dataset": {"frameskip": 4}}},
        [],
        "frameskip 4 x action_dim 2 makes 8",
    ),
    "option": ({}, ["--frameskip", 2], "frameskip is 2 by --frameskip, but 5 by config.yaml"),
    "neither": ({"data": {}, "wm": {}}, [], "give --frameskip or --action-dim"),
    "not whole": ({"data": {}, "wm": {}}, ["--action-dim", 3], "3 does not divide"),
    "zero heads": ({"predictor": {"heads": 0}}, [], "heads is 0, not a positive number"),
    "endless": ({"img_size": math.inf}, [], "img_size is inf, not a positive number"),
    "immense": ({"patch_size": 10**400}, [], "not a positive number"),
    "text": ({"data": {}, "frameskip": "5"}, [], "frameskip is '5', not a positive number"),
    "zero": ({"data": {}, "wm": {}, "frameskip": 0}, [], "frameskip is 0, not a positive number"),
    "negative": ({"data": {}, "wm": {}, "frameskip": -5}, [], "frameskip is -5, not a positive"),
    "part": ({"data": {}, "wm": {}, "frameskip": 2.5}, [], "frameskip is 2.5, not a whole number"),
    "nan": (
        {"data": {"dataset": {"frameskip": math.nan}}, "frameskip": math.nan},
        [],
        "frameskip by config.yaml, data.dataset.frameskip is nan, not a positive",
    ),
    "no size": ({"encoder_scale": {"a": 1}, "data": {}, "wm": {}}, [], "give --frameskip"),
    "other family": ({"model": {"_target_": "os.system", "encoder": {}}}, [], "os.system"),
}


@pytest.mark.parametrize("what", CONFLICTS)
def test_object_config_and_options_must_agree(tmp_path: Path, what: str) -> None:
    change, options, words = CONFLICTS[what]
    paper_runs.paper_run(tmp_path / "run", epochs=(1,), config={**FLAT, **change})
    assert words in rejected(tmp_path / "run", *options, tmp_path / "new")


def test_what_a_config_leaves_open_an_object_of_the_run_says(tmp_path: Path) -> None:
    run_folder = Path(__file__).parents[3] / "examples/two_room/paper_run"
    given = run_folder / "two-room_weights.ckpt", "--config", run_folder / "config.yaml"
    assert "or, where that does not say it, an *_object.ckpt" in rejected(*given, tmp_path / "new")
    imported(run_folder / "two-room_epoch_1_object.ckpt", tmp_path / "new")


OTHERS: dict[str, tuple[object, str]] = {
    "epoch=1_sample_step=9.ckpt": ({"model_state_dict": {"a": torch.ones(1)}}, "PLDM's own rep"),
    "list.ckpt": ([1, 2], "neither a module nor a state dict"),
    "linear_object.ckpt": (nn.Linear(2, 2), "without a module of children"),
    "tensors.ckpt": ({"x.weight": torch.ones(2)}, "found: x"),
    "td.pt": ({"model": {"_Qs.params.0": torch.ones(2)}}, "a TD-MPC2 agent"),
    "swm.ckpt": ({"state_dict": {"model.qs.0.0.weight": torch.ones(2)}}, "a TD-MPC2 agent"),
    "a.pth.tar": ({"predictor": {"a": torch.ones(1)}}, "as jepa-wms and V-JEPA 2-AC save them"),
}


def test_other_files_are_named(tmp_path: Path) -> None:
    two = {"a": world_model(), "b": world_model()}, "two world models, a and b"
    for name, (stored, words) in {**OTHERS, "two_object.ckpt": two}.items():
        torch.save(stored, tmp_path / name)
        assert words in rejected(tmp_path / name, "--frameskip", 5, tmp_path / "new")
    torch.save(world_model(), tmp_path / "old.ckpt", _use_new_zipfile_serialization=False)
    torch.save({}, tmp_path / "p4.ckpt", pickle_protocol=4)
    for name, words in (("old.ckpt", "must be saved again"), ("p4.ckpt", "holds no tensors"),
                        ("gone", "does not exist")):  # fmt: skip
        assert words in rejected(tmp_path / name, tmp_path / "new")


def test_dino_wm_is_what_its_classes_describe(tmp_path: Path) -> None:
    """The file is of dino_wm's own classes; its backbone lies in another, as it always does."""
    sizes, file = Sizes(), FILES / "dino-wm/checkpoints/model_3.pth"
    backbone = tmp_path / "dinov2_tiny_pretrain.pth"
    torch.save(backbone_state(sizes), backbone)
    asked = rejected(FILES / "dino-wm", tmp_path / "new")
    assert "'dinov2_vits14' by the run's config; give its weights with --backbone" in asked
    folder = imported(FILES / "dino-wm", "--backbone", backbone, tmp_path / "new")
    told = source(folder)["numbers"]
    assert told["predictor.num_patches"] == {"value": 9, "from": "the object's mask"}
    assert [told[x]["value"] for x in ("frameskip", "action_dim")] == [3, 2]
    assert [*source(folder)["weights"]] == ["weights_epoch_3.pt"]
    torch.manual_seed(3)
    (read,) = read_run(find_run(file))
    parts: dict[str, dict[str, torch.Tensor]] = defaultdict(dict)
    wanted, model = DinoWm(sizes, parts), load_checkpoint(tmp_path, "new", device=CPU)
    for name, values in read.tensors().items():
        part, _, key = name.replace("extra_encoders.", "", 1).partition(".")
        kind = part if part == "predictor" else f"{part}_encoder"
        parts[kind][key] = values.double()
        assert torch.equal(torch.load(folder / "weights_epoch_3.pt")[name], values)
    pixels, proprio, blocks = torch.rand(2, 3, 12, 12), torch.randn(2, 4), torch.randn(2, 6)
    scale = (sizes.grid**2 * sizes.width) ** -0.5
    mean, std = (torch.tensor(x)[:, None, None] for x in (IMAGENET_MEAN, IMAGENET_STD))
    kinds = (model.in_float64(), torch.float64, 1e-12), (model, torch.float32, 1e-6)
    for ours, kind, tolerance in kinds:
        latents = ours.encode(((pixels.double() - mean) / std).to(kind))
        visual = latents[:, : -sizes.slot].unflatten(1, (9, -1)) / scale
        # The patch projection, which undoes a normalisation, and positions are stored in float32.
        torch.testing.assert_close(visual.double(), wanted.encode(pixels), rtol=1e-5, atol=1e-6)
        slots = ours.embed_proprio(proprio.to(kind))
        full = torch.cat([latents[:, : -sizes.slot], slots], dim=1)
        future = ours.unroll(full[None], blocks[None, :1].to(kind), blocks[None, None, 1:].to(kind))
        predicted = future[0, 0, 0, : -sizes.slot].unflatten(0, (9, -1)) / scale
        last = wanted.unroll(visual.double(), proprio, blocks, window=2)[-1]
        torch.testing.assert_close(predicted.double(), last, rtol=tolerance, atol=tolerance)


def _wider_mask(parts: dict[str, Any]) -> None:
    parts["predictor"].transformer.layers[0][0].bias = torch.ones(1, 1, 9, 9)


PATCH_EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no actions": (lambda p: p.pop("action_encoder"), "without a module of children"),
    "mask": (_wider_mask, "is no mask of 18 tokens"),
    "eps": (lambda p: setattr(p["predictor"].transformer.norm, "eps", 1e-6), "not 1e-05"),
    "a dict": (lambda p: setattr(p["predictor"].transformer.norm, "eps", {}), "not 1e-05"),
    "class": (lambda p: p.update(action_encoder=nn.Linear(2, 2)), "which is not known here"),
    "encoder": (lambda p: p.update(encoder=nn.Linear(2, 2)), "not DINOv2's patch tokens"),
}


@pytest.mark.parametrize("what", PATCH_EDITS)
def test_a_dino_wm_that_computes_otherwise_is_turned_down(tmp_path: Path, what: str) -> None:
    edit, words = PATCH_EDITS[what]
    module = public_module("wm.prejepa.module")
    kinds = {}
    for name, kind in (("vit.ViTPredictor", "CausalPredictor"),
                       ("proprio.ProprioceptiveEmbedding", "Embedder")):  # fmt: skip
        place, _, old = f"models.{name}".rpartition(".")
        kinds[kind] = type(old, (getattr(module, kind),), {"__module__": place})
    sizes = {"num_patches": 9, "num_frames": 2, "dim": 20, "depth": 1, "heads": 2, "mlp_dim": 8}
    slots = {"in_chans": 6, "emb_dim": 4}
    parts = {"epoch": 1, "predictor": kinds["CausalPredictor"](**sizes, dim_head=4),
             "action_encoder": kinds["Embedder"](**slots)}  # fmt: skip
    edit(parts)
    names = ("models", *(kind.__module__ for kind in kinds.values()))
    places = {name: ModuleType(name) for name in names}
    for kind in kinds.values():
        setattr(places[kind.__module__], kind.__name__, kind)
    with pytest.MonkeyPatch.context() as patch:
        for place, made in places.items():
            patch.setitem(sys.modules, place, made)
        torch.save(parts, tmp_path / "model_1.pth")
    assert words in rejected(tmp_path / "model_1.pth", "--frameskip", 3, tmp_path / "new")


def test_a_hub_cache_with_its_links(tmp_path: Path) -> None:
    """The folder that huggingface_hub keeps, and configs whose tree lies under ``model``."""
    cache = tmp_path / "models--user--lewm"
    origin = write_checkpoint(tmp_path / "plain")
    state = with_old_names(dict(random_state_dict(public_config())))
    snapshot = cache / "snapshots" / ("a" * 40)
    for folder in (cache / "blobs", cache / "refs", snapshot):
        folder.mkdir(parents=True)
    (cache / "refs" / "main").write_text("a" * 40)
    torch.save(state, cache / "blobs" / "w")
    (cache / "blobs" / "c").write_bytes((origin / "config.json").read_bytes())
    for name, blob in (("weights.pt", "w"), ("config.json", "c")):
        (snapshot / name).symlink_to(os.path.relpath(cache / "blobs" / blob, snapshot))
    folder = imported(cache, tmp_path / "new")
    frames = torch.randn(2, 3, 28, 28)
    plain, new = (load_checkpoint(tmp_path, name, device=CPU) for name in ("plain", "new"))
    assert torch.equal(new.encode(frames), plain.encode(frames))
    assert new.card.model_digest == plain.card.model_digest  # beside transformers 5's names
    told = source(folder)["weights"]["weights.pt"]
    assert told["bytes"] == (snapshot / "weights.pt").stat().st_size
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "config.json").write_text(json.dumps(tree_config()))
    model = world_model()
    torch.save(model.state_dict(), whole / "weights.pt")
    check_same(imported(whole, "--frameskip", 5, tmp_path / "third"), model)


def test_all_runs_and_again(tmp_path: Path) -> None:
    runs, root = tmp_path / "runs", tmp_path / "root"
    for name, epochs in (("a/one", (1,)), ("two", (1, 2))):
        paper_runs.paper_run(runs / name, epochs=epochs)
    write_checkpoint(runs / "three")
    (runs / "bad").mkdir()
    for revision in "ab":
        (runs / "models--a--b/snapshots" / revision).mkdir(parents=True)
    (runs / "bad" / "x_object.ckpt").write_bytes(b"PK damaged")
    first = run("--all", runs, root)
    assert first.exit_code == 1
    assert "3 of 5 runs are imported" in first.output and "x_object.ckpt" in first.stderr
    assert sorted(x.parent.relative_to(root).as_posix() for x in root.rglob("source.json")) == [
        "a/one", "three", "two"
    ]  # fmt: skip
    assert "name one of its snapshots: a, b" in first.stderr
    shutil.rmtree(runs / "models--a--b")
    (runs / "bad" / "x_object.ckpt").unlink()
    stamps = {x: x.stat().st_mtime_ns for x in root.rglob("*")}
    again = run("--all", runs, root)
    assert again.exit_code == 0 and again.output.count("imported before, unchanged") == 3
    assert {x: x.stat().st_mtime_ns for x in root.rglob("*")} == stamps
    (runs / "a/one/lewm_weights.ckpt").unlink()
    changed = run("--all", runs, root)
    assert changed.exit_code == 1 and "exists, from other files" in changed.stderr


@pytest.mark.parametrize("name", ["pldm_training", "lewm_compiled", "paper-run/lewm_epoch_2"])
def test_files_of_the_tree_are_the_models_that_their_classes_load(
    tmp_path: Path, name: str
) -> None:
    path = FILES / f"{name}_object.ckpt"
    with paper_classes("pldm" if name.startswith("pldm") else "lewm"):
        loaded: Any = torch.load(path, weights_only=False)
        model = getattr(loaded, "model", getattr(loaded, "_orig_mod", loaded))
        options = [] if "/" in name else ["--frameskip", 5]
        folder = imported(path, *options, tmp_path / "new")
        check_same(folder, model)
