"""A small network with random weights, for trying a device without a checkpoint."""

from __future__ import annotations

from typing import Any

import torch
from acpc.contract import ModelCard

from acpc_server.models.config import parse_config
from acpc_server.models.families import jepa_network
from acpc_server.models.frozen import FrozenJepa
from acpc_server.models.parts import JepaConfig

_MODULE = "stable_worldmodel.wm.lewm.module"
_DIM, _BLOCK, _SIDE, _HISTORY, _HIDDEN = 32, 4, 28, 3, 64
_HEAD: dict[str, Any] = {
    "_target_": f"{_MODULE}.MLP", "input_dim": _DIM, "output_dim": _DIM, "hidden_dim": _HIDDEN,
    "norm_fn": {"_target_": "torch.nn.BatchNorm1d", "_partial_": True},
}  # fmt: skip
_CONFIG: dict[str, Any] = {
    "_target_": "stable_worldmodel.wm.lewm.LeWM",
    "encoder": {
        "_target_": "stable_pretraining.backbone.utils.vit_hf", "size": "tiny", "patch_size": 7,
        "image_size": _SIDE, "hidden_size": _DIM, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": _HIDDEN,
    },
    "predictor": {
        "_target_": f"{_MODULE}.Predictor", "num_frames": _HISTORY, "input_dim": _DIM,
        "hidden_dim": _DIM, "output_dim": _DIM, "depth": 2, "heads": 2, "dim_head": 16,
        "mlp_dim": _HIDDEN,
    },
    "action_encoder": {"_target_": f"{_MODULE}.Embedder", "input_dim": _BLOCK, "emb_dim": _DIM},
    "projector": _HEAD,
    "pred_proj": _HEAD,
}  # fmt: skip


def sample_model(device: torch.device) -> FrozenJepa:
    """The same LeWM network every time: two layers each, every part present, gates open."""
    config = parse_config(JepaConfig, _CONFIG)
    # Seeded apart, so that nobody's random numbers change.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = jepa_network(config)
        for weights in network.parameters():
            scale = weights.shape[-1] ** -0.5 if weights.ndim > 1 else 0.1
            weights.data.normal_(0.0, scale).add_(float(weights.ndim == 1))
    count = sum(weights.numel() for weights in network.parameters())
    card = ModelCard("lewm", "0" * 64, _SIDE, _DIM, _HISTORY, _BLOCK, count)
    return FrozenJepa(network, card, device)
