"""The demonstration's network, described as public checkpoints are and written as such a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from acpc_server.models.config import parse_config
from acpc_server.models.families import jepa_network
from acpc_server.models.jepa_model import JepaModel
from acpc_server.models.parts import JepaConfig
from torch import nn
from world import FRAMESKIP, IMAGE_SIZE

HISTORY = 3
ACTION_BLOCK = FRAMESKIP * 2

_LEWM = "stable_worldmodel.wm.lewm"
_WIDTH, _LATENT, _PROJECTOR = 48, 16, 256


def _head(input_dim: int) -> dict[str, Any]:
    return {
        "_target_": f"{_LEWM}.module.MLP",
        "input_dim": input_dim,
        "hidden_dim": _PROJECTOR,
        "output_dim": _LATENT,
        "norm_fn": {"_target_": "torch.nn.BatchNorm1d", "_partial_": True},
    }


CONFIG: dict[str, Any] = {
    "_target_": f"{_LEWM}.LeWM",
    "encoder": {
        "_target_": "stable_pretraining.backbone.utils.vit_hf",
        "size": "tiny",
        "patch_size": 8,
        "image_size": IMAGE_SIZE,
        "pretrained": False,
        "use_mask_token": False,
        "hidden_size": _WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 2 * _WIDTH,
    },
    "predictor": {
        "_target_": f"{_LEWM}.module.Predictor",
        "num_frames": HISTORY,
        "input_dim": _LATENT,
        "hidden_dim": _WIDTH,
        "output_dim": _LATENT,
        "depth": 2,
        "heads": 4,
        "dim_head": 16,
        "mlp_dim": 128,
        "dropout": 0.0,
        "emb_dropout": 0.0,
    },
    "action_encoder": {
        "_target_": f"{_LEWM}.module.Embedder",
        "input_dim": ACTION_BLOCK,
        "emb_dim": _LATENT,
    },
    "projector": _head(_WIDTH),
    "pred_proj": _head(_LATENT),
}
"""What ``config.json`` holds: a tree of class paths and their arguments."""


def build() -> JepaModel:
    """Build an untrained network with the server's own modules, on torch's global seed.

    The encoder starts from torch's default weights and unit-variance positions. With the usual
    std of 0.02 an encoder this narrow learns too late where its patches are, and the latents of a
    noise-trained one fold along y.
    """
    network = jepa_network(parse_config(JepaConfig, CONFIG))
    for module in network.encoder.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            module.reset_parameters()
    nn.init.normal_(network.encoder.embeddings.position_embeddings)
    return network


def save(model: JepaModel, folder: Path, dtype: torch.dtype = torch.float32) -> None:
    """Write ``config.json`` and ``weights.pt`` (a plain state dict) into ``folder``.

    float16 halves the file and moves IR by less than a percent.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n", encoding="utf-8")
    state = model.state_dict()
    for name, tensor in state.items():
        if tensor.is_floating_point():
            state[name] = tensor.to(dtype)
    torch.save(state, folder / "weights.pt")
