"""PreJEPA checkpoints made by the public library's own classes, and their answers in float64."""

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from public_library import public_module
from torch import Tensor, nn

MODULE = "stable_worldmodel.wm.prejepa.module"
Config = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """Of one checkpoint; ``slots`` are inputs and width of each, in their order."""

    backbone: Config
    patches: int
    predictor: Config
    slots: dict[str, tuple[int, int]] = field(
        default_factory=lambda: {"proprio": (4, 10), "action": (6, 10)}
    )
    history: int = 3
    name: str = ""

    @property
    def side(self) -> int:
        """Side of the frames in pixels."""
        return int(self.patches**0.5) * int(self.backbone["patch_size"])

    @property
    def config(self) -> Config:
        """The ``config.json`` that training writes, its backbone named or written out."""
        width = self.backbone["hidden_size"] + sum(emb for _, emb in self.slots.values())
        shape = {"_target_": "transformers.Dinov2Config", **self.backbone}
        named = {"_target_": f"{MODULE}.create_backbone", "name": self.name}
        written = {"_target_": "transformers.Dinov2Model", "config": shape}
        return {
            "_target_": "stable_worldmodel.wm.PreJEPA",
            "history_size": self.history,
            "num_pred": 1,
            "interpolate_pos_encoding": True,
            "encoder": named if self.name else written,
            "predictor": {
                "_target_": f"{MODULE}.CausalPredictor", "num_patches": self.patches,
                "num_frames": self.history, "dim": width, "dropout": 0.1, **self.predictor,
            },
            "extra_encoders": {
                "_target_": "torch.nn.ModuleDict",
                "modules": {
                    key: {"_target_": f"{MODULE}.Embedder", "in_chans": inputs, "emb_dim": emb}
                    for key, (inputs, emb) in self.slots.items()
                },
            },
        }  # fmt: skip


TINY = Sizes(
    {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 70,
     "patch_size": 14},
    patches=9,
    predictor={"depth": 2, "heads": 2, "dim_head": 16, "mlp_dim": 32},
)  # fmt: skip
MEDIUM = Sizes(
    {"hidden_size": 96, "num_hidden_layers": 4, "num_attention_heads": 6, "image_size": 56,
     "patch_size": 8},
    patches=25,
    predictor={"depth": 3, "heads": 4, "dim_head": 32, "mlp_dim": 256},
)  # fmt: skip
# DINOv2's own size, behind fewer patches than its 256.
SMALL = Sizes(
    {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "image_size": 518,
     "patch_size": 14},
    patches=36,
    predictor={"depth": 6, "heads": 16, "dim_head": 64, "mlp_dim": 2048},
    name="dinov2_small",
)  # fmt: skip


def public_prejepa(sizes: Sizes, seed: int = 0) -> nn.Module:
    """The library's network with weights under which every part matters."""
    from transformers import Dinov2Config, Dinov2Model

    module, config = public_module("wm.prejepa.module"), sizes.config
    torch.manual_seed(seed)
    predictor = {k: v for k, v in config["predictor"].items() if k != "_target_"}
    slots = {
        key: module.Embedder(in_chans=inputs, emb_dim=width)
        for key, (inputs, width) in sizes.slots.items()
    }
    network: nn.Module = public_module("wm.prejepa.prejepa").PreJEPA(
        Dinov2Model(Dinov2Config(**sizes.backbone)),
        module.CausalPredictor(**predictor),
        nn.ModuleDict(slots),
        history_size=sizes.history,
    )
    for weights in network.parameters():
        scale = weights.shape[-1] ** -0.5 if weights.ndim > 1 else 0.1
        weights.data.normal_(0.0, scale).add_(float(weights.ndim == 1))
    return network.eval()


def write_prejepa(folder: Path, sizes: Sizes, network: nn.Module) -> None:
    """The folder that the library's ``save_pretrained`` writes."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(sizes.config, indent=2))
    torch.save(network.state_dict(), folder / "weights.pt")


def public_costs(
    network: nn.Module, monkeypatch: pytest.MonkeyPatch, info: dict[str, Tensor], blocks: Tensor
) -> dict[str, Tensor]:
    """The library's ``get_cost`` in float64, with all that it leaves in its ``info``.

    ``info`` holds pixels (h, 3, side, side), goal (3, side, side) and of each slot but the action
    its rows and ``goal_`` row; ``blocks`` are candidates (j, h + H - 1, width).
    """
    # It casts its inputs to float32 itself.
    monkeypatch.setattr(Tensor, "float", Tensor.double)
    count = len(blocks)
    given = {
        key: (x[None] if key.startswith("goal") else x).double()[None, None].expand(
            1, count, *([-1] * (x.ndim + key.startswith("goal")))
        )
        for key, x in info.items()
    }  # fmt: skip
    given |= {key: torch.zeros(1, count, 1) for key in ("id", "step_idx")}
    given["action"] = blocks[None].double()
    with torch.no_grad():
        cost = copy.deepcopy(network).double().get_cost(given, blocks[None].double())
    monkeypatch.undo()
    return {**given, "cost": cost}
