"""Checkpoint folders in the public format: ``config.json`` beside a ``state_dict`` from torch.save.

The weights are random but well scaled: activations stay of order one through every layer, gates
are open and BatchNorm statistics are not trivial, so that an error anywhere shows in the output.
"""

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

Config = dict[str, Any]
Size = Literal["small", "shallow", "paper"]

SIZES: dict[Size, Config] = {
    # Small enough for thousands of rollouts in a test; every optional part is present.
    "small": {
        "encoder": {"size": "tiny", "patch_size": 7, "image_size": 28, "hidden_size": 24,
                    "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 48},
        "dim": 16,
        "mlp_hidden": 32,
        "predictor": {"num_frames": 3, "input_dim": 16, "hidden_dim": 16, "output_dim": 16,
                      "depth": 2, "heads": 2, "dim_head": 8, "mlp_dim": 32},
    },
    # The published checkpoints: 18 million parameters, 303 tensors.
    "paper": {
        "encoder": {"size": "tiny", "patch_size": 14, "image_size": 224},
        "dim": 192,
        "mlp_hidden": 2048,
        "predictor": {"num_frames": 3, "input_dim": 192, "hidden_dim": 192, "output_dim": 192,
                      "depth": 6, "heads": 16, "dim_head": 64, "mlp_dim": 2048},
    },
}  # fmt: skip
# One layer of each network: where the model is asked often, and how it is built is no matter.
SIZES["shallow"] = {
    **SIZES["small"],
    "encoder": {**SIZES["small"]["encoder"], "num_hidden_layers": 1},
    "predictor": {**SIZES["small"]["predictor"], "depth": 1},
}
VIT_WIDTHS = {"tiny": 192, "small": 384, "base": 768}
VIT_DEPTHS = {"tiny": 12, "small": 12, "base": 12}


def public_config(size: Size = "small", *, family: str = "lewm", block_dim: int = 10) -> Config:
    """The ``config.json`` tree that ``save_pretrained`` writes for ``lewm`` or ``pldm``."""
    geometry = SIZES[size]
    module = f"stable_worldmodel.wm.{family}.module"
    encoder_width = geometry["encoder"].get("hidden_size", VIT_WIDTHS["tiny"])

    def mlp(input_dim: int) -> Config:
        return {
            "_target_": f"{module}.MLP",
            "input_dim": input_dim,
            "output_dim": geometry["dim"],
            "hidden_dim": geometry["mlp_hidden"],
            "norm_fn": {"_target_": "torch.nn.BatchNorm1d", "_partial_": True},
        }

    return {
        "_target_": f"stable_worldmodel.wm.{family}.{ {'lewm': 'LeWM', 'pldm': 'PLDM'}[family] }",
        "encoder": {"_target_": "stable_pretraining.backbone.utils.vit_hf", **geometry["encoder"],
                    "pretrained": False, "use_mask_token": False},
        "predictor": {"_target_": f"{module}.Predictor", **geometry["predictor"], "dropout": 0.1,
                      "emb_dropout": 0.0},
        "action_encoder": {"_target_": f"{module}.Embedder", "input_dim": block_dim,
                           "emb_dim": geometry["dim"]},
        "projector": mlp(encoder_width),
        "pred_proj": mlp(geometry["predictor"]["output_dim"]),
    }  # fmt: skip


def tensor_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the state dict of ``config``, with 5.x transformer names.

    Written from the public modules' attribute names, for configs that ``public_config`` makes and
    their edits: every ``_target_`` present, projections with BatchNorm1d or LayerNorm.
    """
    shapes: dict[str, tuple[int, ...]] = {}

    def linear(name: str, inputs: int, outputs: int, bias: bool = True) -> None:
        shapes[f"{name}.weight"] = (outputs, inputs)
        if bias:
            shapes[f"{name}.bias"] = (outputs,)

    def norm(name: str, width: int) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (width,)

    enc = config["encoder"]
    width = enc.get("hidden_size", VIT_WIDTHS[enc["size"]])
    hidden = enc.get("intermediate_size", 4 * VIT_WIDTHS[enc["size"]])
    patch = enc["patch_size"]
    shapes["encoder.embeddings.cls_token"] = (1, 1, width)
    if enc.get("use_mask_token", True):
        shapes["encoder.embeddings.mask_token"] = (1, 1, width)
    tokens = (enc["image_size"] // patch) ** 2 + 1
    shapes["encoder.embeddings.position_embeddings"] = (1, tokens, width)
    shapes["encoder.embeddings.patch_embeddings.projection.weight"] = (width, 3, patch, patch)
    shapes["encoder.embeddings.patch_embeddings.projection.bias"] = (width,)
    for index in range(enc.get("num_hidden_layers", VIT_DEPTHS[enc["size"]])):
        layer = f"encoder.layers.{index}"
        for part in "qkvo":
            linear(f"{layer}.attention.{part}_proj", width, width)
        norm(f"{layer}.layernorm_before", width)
        norm(f"{layer}.layernorm_after", width)
        linear(f"{layer}.mlp.fc1", width, hidden)
        linear(f"{layer}.mlp.fc2", hidden, width)
    norm("encoder.layernorm", width)

    pred = config["predictor"]
    inputs, dim = pred["input_dim"], pred["hidden_dim"]
    outputs = pred.get("output_dim") or inputs
    inner = pred["heads"] * pred.get("dim_head", 64)
    shapes["predictor.pos_embedding"] = (1, pred["num_frames"], inputs)
    norm("predictor.transformer.norm", dim)
    if inputs != dim:
        linear("predictor.transformer.input_proj", inputs, dim)
        linear("predictor.transformer.cond_proj", inputs, dim)
    if dim != outputs:
        linear("predictor.transformer.output_proj", dim, outputs)
    for index in range(pred["depth"]):
        layer = f"predictor.transformer.layers.{index}"
        norm(f"{layer}.attn.norm", dim)
        linear(f"{layer}.attn.to_qkv", dim, 3 * inner, bias=False)
        if pred["heads"] > 1 or inner != dim:
            linear(f"{layer}.attn.to_out.0", inner, dim)
        norm(f"{layer}.mlp.net.0", dim)
        linear(f"{layer}.mlp.net.1", dim, pred["mlp_dim"])
        linear(f"{layer}.mlp.net.4", pred["mlp_dim"], dim)
        linear(f"{layer}.adaLN_modulation.1", dim, 6 * dim)

    act = config["action_encoder"]
    smoothed, emb = act.get("smoothed_dim", 10), act["emb_dim"]
    shapes["action_encoder.patch_embed.weight"] = (smoothed, act["input_dim"], 1)
    shapes["action_encoder.patch_embed.bias"] = (smoothed,)
    linear("action_encoder.embed.0", smoothed, act.get("mlp_scale", 4) * emb)
    linear("action_encoder.embed.2", act.get("mlp_scale", 4) * emb, emb)

    for head in ("projector", "pred_proj"):
        mlp = config.get(head)
        if mlp is None:
            continue
        linear(f"{head}.net.0", mlp["input_dim"], mlp["hidden_dim"])
        norm(f"{head}.net.1", mlp["hidden_dim"])
        if "BatchNorm1d" in str(mlp.get("norm_fn")):
            shapes[f"{head}.net.1.running_mean"] = (mlp["hidden_dim"],)
            shapes[f"{head}.net.1.running_var"] = (mlp["hidden_dim"],)
            shapes[f"{head}.net.1.num_batches_tracked"] = ()
        linear(f"{head}.net.3", mlp["hidden_dim"], mlp.get("output_dim") or mlp["input_dim"])
    return shapes


def random_state_dict(config: Config, seed: int = 0) -> OrderedDict[str, Tensor]:
    """A state dict for ``config`` with ``_metadata``, as ``model.state_dict()`` returns it."""
    generator = torch.Generator().manual_seed(seed)
    state: OrderedDict[str, Tensor] = OrderedDict()
    for name, shape in tensor_shapes(config).items():
        noise = torch.randn(shape, generator=generator)
        leaf = name.rsplit(".", 1)[-1]
        if leaf == "num_batches_tracked":
            state[name] = torch.tensor(1234)
        elif leaf == "running_var":
            state[name] = 0.5 + noise.square()
        elif leaf == "weight" and len(shape) == 1:
            state[name] = 1 + 0.2 * noise
        elif leaf == "weight":
            state[name] = noise / (noise[0].numel() ** 0.5)
        else:
            state[name] = 0.2 * noise
    state._metadata = OrderedDict({"": {"version": 1}})
    return state


OLD_NAMES = {
    ".attention.q_proj.": ".attention.attention.query.",
    ".attention.k_proj.": ".attention.attention.key.",
    ".attention.v_proj.": ".attention.attention.value.",
    ".attention.o_proj.": ".attention.output.dense.",
    ".mlp.fc1.": ".intermediate.dense.",
    ".mlp.fc2.": ".output.dense.",
}


def with_old_names(state: dict[str, Tensor]) -> OrderedDict[str, Tensor]:
    """The same tensors under the vision-transformer names of transformers 4.x."""
    renamed: OrderedDict[str, Tensor] = OrderedDict()
    for name, tensor in state.items():
        old = name
        if name.startswith("encoder.layers."):
            old = name.replace("encoder.layers.", "encoder.encoder.layer.", 1)
            for new_part, old_part in OLD_NAMES.items():
                old = old.replace(new_part, old_part)
        renamed[old] = tensor
    return renamed


def write_checkpoint(
    folder: Path,
    config: Config | None = None,
    state: object = None,
    *,
    weights: str = "weights.pt",
    seed: int = 0,
) -> Path:
    """Write ``config.json`` and a torch weights file, as the public ``save_pretrained`` does.

    Args:
        folder: Made when missing.
        config: ``public_config()`` when omitted.
        state: Whatever torch.save is to store; ``random_state_dict(config, seed)`` when omitted.
        weights: Name of the weights file.
        seed: Seed of the random weights.

    Returns:
        ``folder``.
    """
    config = public_config() if config is None else config
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    torch.save(random_state_dict(config, seed) if state is None else state, folder / weights)
    return folder
