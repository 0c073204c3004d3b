"""Every form in which a public checkpoint is found loads to the same model."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from acpc_server.errors import FailedPrecondition, NotFound, UnsafeCheckpoint
from acpc_server.models import (
    ModelCard,
    list_checkpoints,
    list_others,
    load_checkpoint,
    load_served,
)
from acpc_server.models.folder import find_checkpoint
from acpc_server.scheduling import ServingOptions
from public_checkpoint import (
    Config,
    public_config,
    random_state_dict,
    with_old_names,
    write_checkpoint,
)
from structlog.testing import capture_logs
from torch import Tensor

CPU = torch.device("cpu")
FRAMES = torch.randn(2, 3, 28, 28, generator=torch.Generator().manual_seed(0))
State = dict[str, Tensor]


def latents(root: Path, name: str = "run", weights: str = "") -> Tensor:
    return load_checkpoint(root, name, weights, device=CPU).encode(FRAMES)


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Tensor:
    root = tmp_path_factory.mktemp("plain")
    write_checkpoint(root / "run")
    return latents(root)


@pytest.mark.parametrize(
    ("target", "family"),
    [
        ("stable_worldmodel.wm.LeWM", "lewm"),
        ("stable_worldmodel.wm.PLDM", "pldm"),
        ("stable_worldmodel.wm.lewm.LeWM", "lewm"),
        ("stable_worldmodel.wm.lewm.lewm.LeWM", "lewm"),
        ("jepa.JEPA", "lewm"),
        ("stable_worldmodel.wm.pldm.PLDM", "pldm"),
        ("stable_worldmodel.wm.pldm.pldm.PLDM", "pldm"),
    ],
)
def test_model_spellings(tmp_path: Path, wanted: Tensor, target: str, family: str) -> None:
    write_checkpoint(tmp_path / "run", {**public_config(), "_target_": target})
    assert card(tmp_path).family == family
    torch.testing.assert_close(latents(tmp_path), wanted)


def original_repository(config: Config) -> None:
    config |= {"_target_": "jepa.JEPA", "embed_dim": 16, "history_size": 3}
    config["predictor"]["_target_"] = "module.ARPredictor"
    config["action_encoder"]["_target_"] = "module.Embedder"
    config["projector"]["_target_"] = config["pred_proj"]["_target_"] = "module.MLP"


def early(config: Config) -> None:
    original_repository(config)
    del config["predictor"]["_target_"]
    del config["action_encoder"]["_target_"]


def hydra_keys(config: Config) -> None:
    config |= {"_convert_": "all", "_recursive_": True}
    config["encoder"] |= {"_convert_": "none", "_partial_": False}


def training_keys(config: Config) -> None:
    config["encoder"] |= {"hidden_dropout_prob": 0.1, "initializer_range": 0.01}
    config["predictor"] |= {"dropout": 0, "emb_dropout": 0.5}
    config["projector"]["norm_fn"]["momentum"] = None


def lightning(state: State) -> object:
    prefixed = {f"model.{name}": tensor for name, tensor in state.items()}
    return {"epoch": 3, "state_dict": {**prefixed, "sigreg.knots": torch.ones(4)}}


def uncounted(state: State) -> object:
    return {name: t for name, t in state.items() if not name.endswith("num_batches_tracked")}


def under(prefix: str) -> Callable[[State], object]:
    return lambda state: {f"{prefix}{name}": tensor for name, tensor in state.items()}


FORMS: dict[str, Callable[[State], object]] = {
    "state_dict": lambda state: {"state_dict": state, "epoch": 1},
    "model": lambda state: {"model": state},
    "prefix": under("model."),
    "lightning": lightning,
    "compiled": under("_orig_mod."),
    "parallel": under("module."),
    "parallel-compiled": under("module._orig_mod."),
    "compiled-parallel": under("_orig_mod.module."),
    "lightning-parallel": under("model.module."),
    "old-names": with_old_names,
    "no-counters": uncounted,
    "transposed": lambda state: {
        name: t.t().contiguous().t() if t.ndim == 2 else t for name, t in state.items()
    },
}


@pytest.mark.parametrize("key", ["ema", "ema_model", "state_dict_ema"])
def test_averages_beside_the_weights_are_left_out_and_the_log_says_so(
    tmp_path: Path, wanted: Tensor, key: str
) -> None:
    state = random_state_dict(public_config())
    both = {"state_dict": {f"model.{name}": x for name, x in state.items()}}
    both |= {"ema_decay": 0.99}
    write_checkpoint(tmp_path / "plain", state=both)
    both |= {key: state} if key != "ema_model" else {}
    both["state_dict"] |= {
        f"ema_model.{name}": x for name, x in state.items() if key == "ema_model"
    }
    write_checkpoint(tmp_path / "run", state=both)
    with capture_logs() as lines:
        torch.testing.assert_close(latents(tmp_path, "plain"), wanted)
        assert not lines
        torch.testing.assert_close(latents(tmp_path), wanted)
    assert [(line["event"], line["what"]) for line in lines] == [("weights_left_out", [key])]
    assert card(tmp_path).weights_read == f"state_dict, and not {key}"


def test_shards_are_named_as_such(tmp_path: Path) -> None:
    """Hugging Face splits what is large; no one of the files is a model."""
    for shard in ("model-00001-of-00002.safetensors", "pytorch_model-00001-of-00002.bin"):
        folder = write_checkpoint(tmp_path / shard)
        (folder / "weights.pt").rename(folder / shard)
        with pytest.raises(FailedPrecondition, match=rf"in shards \({shard}\); save all"):
            latents(tmp_path, shard)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("container", ["pt", "safetensors"])
def test_sixteen_bit_weights(tmp_path: Path, dtype: torch.dtype, container: str) -> None:
    """Stored in 16 bits, computed in 32: the only change is the rounding of the weights."""
    state = random_state_dict(public_config())
    halves = {n: t.to(dtype) if t.is_floating_point() else t for n, t in state.items()}
    rounded = {n: t.float() if t.is_floating_point() else t for n, t in halves.items()}
    write_checkpoint(tmp_path / "rounded", state=rounded)
    write_checkpoint(tmp_path / "run", state=halves)
    if container == "safetensors":
        (tmp_path / "run" / "weights.pt").unlink()
        safetensors.torch.save_file(halves, tmp_path / "run" / "model.safetensors")
    found = latents(tmp_path)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, latents(tmp_path, "rounded"))


def card(root: Path, name: str = "run", weights: str = "") -> ModelCard:
    return load_checkpoint(root, name, weights, device=CPU).card


def test_digest_ignores_the_container_and_the_order_of_keys(tmp_path: Path) -> None:
    """Nor does a byte order mark count, with which files written by hand may begin."""
    state = dict(random_state_dict(public_config()))
    folder = write_checkpoint(tmp_path / "run", state=state)
    reference = card(tmp_path).digest
    safetensors.torch.save_file(state, folder / "weights.safetensors")
    torch.save(dict(reversed(state.items())), folder / "weights_epoch_1.pt")
    torch.save({"state_dict": state}, folder / "weights_epoch_2.pt")
    torch.save(under("module.")(state), folder / "weights_epoch_3.pt")
    others = ["weights.safetensors", *(f"weights_epoch_{epoch}.pt" for epoch in (1, 2, 3))]
    assert {card(tmp_path, weights=weights).digest for weights in others} == {reference}
    config = json.loads((folder / "config.json").read_text())
    turned = json.dumps(dict(reversed(config.items())))
    for name, text in (("config.json", turned), ("acpc.json", "{}")):
        (folder / name).write_text(text, encoding="utf-8-sig")
    assert card(tmp_path).digest == reference


def test_how_a_checkpoint_is_served_is_read_and_is_no_part_of_its_digests(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run")
    known = card(tmp_path)
    assert load_served(tmp_path, "run", device=CPU)[1] == ServingOptions()
    (folder / "acpc.json").write_text('{"serving": {"batch_delay_seconds": 0}}')
    assert card(tmp_path) == known
    served = load_served(tmp_path, "run", device=CPU)[1]
    assert served == ServingOptions(batch_delay_seconds=0)


@pytest.mark.parametrize(
    ("serving", "words"),
    [
        ('{"batch_delay_seconds": 1.5}', r"\.batch_delay_seconds: .* or equal to 1, found 1\.5"),
        ('{"batch_delay_seconds": -1}', r"\.batch_delay_seconds: .* or equal to 0, found -1"),
        ('{"batch_delay_seconds": "0"}', r"\.batch_delay_seconds: .* valid number, found '0'"),
        ('{"batch_delay": 0}', r"\.batch_delay: unknown key \(value 0\)"),
        ("3", ": .* valid dictionary .*, found 3"),
    ],
)
def test_a_bad_serving_option_is_named(tmp_path: Path, serving: str, words: str) -> None:
    (write_checkpoint(tmp_path / "run") / "acpc.json").write_text(f'{{"serving": {serving}}}')
    with pytest.raises(UnsafeCheckpoint, match=rf"acpc\.json: serving{words}"):
        card(tmp_path)


def test_one_model_has_one_digest_whatever_files_hold_it(tmp_path: Path) -> None:
    state = dict(random_state_dict(public_config()))
    write_checkpoint(tmp_path / "run", state=state)
    found = {card(tmp_path).model_digest}
    for form, write in FORMS.items():
        write_checkpoint(tmp_path / form, state=write(dict(state)))
        found.add(card(tmp_path, form).model_digest)
    for edit in (original_repository, early, hydra_keys, training_keys):
        edit(config := public_config())
        write_checkpoint(tmp_path / edit.__name__, config, state)
        found.add(card(tmp_path, edit.__name__).model_digest)
    assert len(found) == 1
    # A golden value: receipts of one release stay comparable with those of the next.
    counted = {n: torch.arange(t.numel()).reshape(t.shape) % 7 / 7.0 for n, t in state.items()}
    write_checkpoint(tmp_path / "golden", state=counted)
    assert card(tmp_path, "golden").model_digest[:16] == "60a5912a2fd49e53"


def test_another_model_has_other_digests(tmp_path: Path) -> None:
    """Every tensor and the config count; what training counted is no part of the model."""
    state = dict(random_state_dict(public_config()))
    write_checkpoint(tmp_path / "run", state=state)
    first, second = (f"encoder.layers.{i}.layernorm_after.bias" for i in (0, 1))
    write_checkpoint(
        tmp_path / "swapped", state={**state, first: state[second], second: state[first]}
    )
    for folder, name in (
        ("tensor", "encoder.embeddings.cls_token"),
        ("counter", "projector.net.1.num_batches_tracked"),
    ):
        write_checkpoint(tmp_path / folder, state={**state, name: state[name] + 1})
    for field, value in (("layer_norm_eps", 1e-6), ("num_attention_heads", 1)):
        config = public_config()
        config["encoder"][field] = value
        write_checkpoint(tmp_path / field, config, state)
    names = ("run", "counter", "tensor", "swapped", "layer_norm_eps", "num_attention_heads")
    cards = [card(tmp_path, name) for name in names]
    assert len({found.digest for found in cards}) == len(names)
    assert len({found.model_digest for found in cards[1:]}) == len(names) - 1


def test_choice_of_weights(tmp_path: Path) -> None:
    """weights.pt unless another is named; a lone file needs no name."""
    for seed, filename in enumerate(("weights.pt", "weights_epoch_1.pt", "weights_epoch_2.pt")):
        write_checkpoint(tmp_path / "run", weights=filename, seed=seed)
        write_checkpoint(tmp_path / f"alone{seed}", weights=filename, seed=seed)
    torch.testing.assert_close(latents(tmp_path), latents(tmp_path, "alone0"))
    for seed in (1, 2):
        named = latents(tmp_path, "run", f"weights_epoch_{seed}.pt")
        torch.testing.assert_close(named, latents(tmp_path, f"alone{seed}"))
        assert not torch.allclose(named, latents(tmp_path))


def test_listing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_checkpoint(root / "b" / "seed1")
    write_checkpoint(root / "a")
    write_checkpoint(root / "b" / "seed0", weights="weights_epoch_2.pt")
    write_checkpoint(root / "b" / "seed0", weights="weights_epoch_1.pt")
    write_checkpoint(tmp_path / "outside" / "run")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "a" / "linked.pt").symlink_to(tmp_path / "outside" / "run" / "weights.pt")
    (root / "a" / "folder.pt").mkdir()
    (root / "no_config").mkdir()
    (root / "no_config" / "weights.pt").write_bytes(b"x")
    (root / "pickled").mkdir()
    (root / "pickled" / "config.json").write_text("{}")
    (root / "pickled" / "run_object.ckpt").write_bytes(b"x")
    write_checkpoint(root / "c", weights="last.ckpt")
    (root / "pipe").mkdir()
    (root / "pipe" / "weights.pt").write_bytes(b"x")
    os.mkfifo(root / "pipe" / "config.json")
    found = list_checkpoints(root)
    assert found[0].size_bytes == (root / "a" / "weights.pt").stat().st_size
    assert [(entry.name, entry.weights) for entry in found] == [
        ("a", "weights.pt"),
        ("b/seed0", "weights_epoch_1.pt"),
        ("b/seed0", "weights_epoch_2.pt"),
        ("b/seed1", "weights.pt"),
        ("c", "last.ckpt"),
    ]
    for entry in found:
        assert find_checkpoint(root, entry.name, entry.weights) == entry
        assert latents(root, entry.name, entry.weights).shape == (2, 16)


# Files of a folder, and what is said of it.
CASES = {
    "run": (["config.yaml", "a_epoch_1_object.ckpt"], "no config.json", "acpc-server import run"),
    "pldm": (["epoch=1_sample_step=20.ckpt"], "PLDM's own repository", ""),
    "dino/checkpoints": (["model_3.pth"], "no config.json", "import dino/checkpoints"),
    "models--user--repo": (["x"], "files are links", "acpc-server import hf:user/repo repo"),
    "epochs": (["weights_epoch_1.pt", "weights_epoch_2.pt"], "2 epochs", "weights_epoch_2.pt"),
    "pickled": (["a_object.ckpt"], "a pickled model", "acpc-server import pickled"),
    "whole": (["weights.pt"], "the tree lies under model", "acpc-server import whole"),
    "other": (["weights.pt"], "TDMPC2", ""),
    "bare": ([], "without a weights file", ""),
    "sharded": (
        [".metadata", "a.distcp"],
        "distributed checkpoint",
        "dcp_to_torch sharded sharded.pt",
    ),
}
CONFIGS = {
    "epochs": public_config(), "pickled": public_config(), "whole": {"model": public_config()},
    "other": {"_target_": "stable_worldmodel.wm.tdmpc2.TDMPC2"}, "bare": public_config(),
    "sharded": public_config(),
}  # fmt: skip


@pytest.fixture
def others(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "good")
    (tmp_path / "notes").mkdir()
    for name, (files, *_) in CASES.items():
        (tmp_path / name).mkdir(parents=True)
        for file in files:
            (tmp_path / name / file).write_bytes(b"x")
        if name in CONFIGS:
            (tmp_path / name / "config.json").write_text(json.dumps(CONFIGS[name]))
    return tmp_path


def test_each_is_listed_with_its_reason(others: Path) -> None:
    found = dict(list_others(others))
    assert found.keys() == CASES.keys()
    for name, (_, problem, command) in CASES.items():
        assert problem in found[name].problem
        assert command in found[name].command and bool(command) == bool(found[name].command)
    assert "good" in {entry.name for entry in list_checkpoints(others)}
    with pytest.raises(NotFound, match=r"a distributed checkpoint.*; next: python -m torch"):
        find_checkpoint(others, "sharded")


@pytest.mark.parametrize("inner", ["last", "checkpoints/epoch=0-step=10.ckpt"])
@pytest.mark.parametrize("config", [True, False])
def test_a_distributed_checkpoint_inside_is_named_with_its_command(
    tmp_path: Path, inner: str, config: bool
) -> None:
    place = tmp_path / "fsdp" / inner
    place.mkdir(parents=True)
    if config:
        (tmp_path / "fsdp" / "config.json").write_text(json.dumps(public_config()))
    for name in (".metadata", "meta.pt", "__0_0.distcp"):
        (place / name).write_bytes(b"x")
    made = f"consolidate_checkpoint fsdp/{inner} --output_file fsdp/{inner}.ckpt"
    with pytest.raises(NotFound, match=re.escape(f"{made}, then acpc-server import fsdp")):
        find_checkpoint(tmp_path, "fsdp")
