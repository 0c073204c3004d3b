"""Files that training leaves behind, made with the public library's own classes.

The models are small; their numbers are all different where they can be, so that none can stand for
another. The paper's code names the same classes ``jepa.JEPA`` and ``module.*``.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
import yaml
from public_library import public_module
from torch import nn
from transformers import ViTConfig, ViTModel

Family = Literal["lewm", "pldm"]
Wrapping = Literal["bare", "training", "parallel", "compiled", "dict"]
OLD = {"LeWM": "JEPA", "PLDM": "JEPA", "Predictor": "ARPredictor"}
WIDTH, LAYERS, HEADS, SIDE, PATCH, DIM, BLOCK = 24, 2, 3, 28, 7, 16, 10
FLAT = {
    "img_size": SIDE, "patch_size": PATCH, "encoder_scale": "tiny", "output_model_name": "lewm",
    "image_noise": {"type": "gaussian", "std": 0.08},
    "wm": {"type": "lewm", "history_size": 3, "num_preds": 1, "embed_dim": DIM, "action_dim": 2},
    "predictor": {"depth": 2, "heads": 2, "mlp_dim": 40, "dim_head": 8, "dropout": 0.1},
    "data": {"dataset": {"name": "tworoom", "frameskip": 5}},
}  # fmt: skip
# One of the released sizes, as small as the models here.
TINY = (WIDTH, LAYERS, HEADS)


_HEAD = {"input_dim": WIDTH, "output_dim": DIM, "hidden_dim": 32}
SMALL = {
    "encoder": {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
                "intermediate_size": 2 * WIDTH, "image_size": SIDE, "patch_size": PATCH},
    "predictor": {"num_frames": 3, "input_dim": DIM, "hidden_dim": WIDTH, "output_dim": WIDTH,
                  "depth": 2, "heads": 2, "dim_head": 8, "mlp_dim": 40, "dropout": 0.1},
    "action_encoder": {"input_dim": BLOCK, "emb_dim": DIM},
    "projector": _HEAD, "pred_proj": _HEAD,
}  # fmt: skip


def tree_config(family: Family = "lewm") -> dict[str, Any]:
    """The config of newer code: a tree to instantiate, with references left open."""
    module = f"stable_worldmodel.wm.{family}.module"
    head = {
        "_target_": f"{module}.MLP", "output_dim": "${model.predictor.input_dim}", "hidden_dim": 32,
        "norm_fn": {"_target_": "torch.nn.BatchNorm1d", "_partial_": True},
    }  # fmt: skip
    return {
        "img_size": SIDE, "patch_size": PATCH, "frameskip": 5, "embed_dim": DIM,
        "data": {"dataset": {"frameskip": "${frameskip}"}},
        "model": {
            "_target_": f"stable_worldmodel.wm.{family}.{family.upper().replace('LEWM', 'LeWM')}",
            "encoder": {
                "_target_": "stable_pretraining.backbone.utils.vit_hf", "size": "tiny",
                "patch_size": "${patch_size}", "image_size": "${img_size}",
                "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
                "intermediate_size": 2 * WIDTH,
            },
            "predictor": {
                "_target_": f"{module}.Predictor", "num_frames": 3, "input_dim": "${embed_dim}",
                "hidden_dim": WIDTH, "output_dim": WIDTH, "depth": 2, "heads": 2, "dim_head": 8,
                "mlp_dim": 40,
            },
            "action_encoder": {"_target_": f"{module}.Embedder", "input_dim": "${eval:5*2}",
                               "emb_dim": "${embed_dim}"},
            "projector": {**head, "input_dim": WIDTH},
            "pred_proj": {**head, "input_dim": WIDTH},
        },
    }  # fmt: skip


@contextmanager
def paper_classes(family: Family) -> Iterator[ModuleType]:
    """The classes of a family as ``jepa`` and ``module`` name them, while files are written."""
    source = public_module(f"wm.{family}.module")
    top = public_module(f"wm.{family}.{family}")
    made = ModuleType("module"), ModuleType("jepa")
    for place, names, origin in (
        (made[0], ("Predictor", "Embedder", "MLP"), source),
        (made[1], ("LeWM" if family == "lewm" else "PLDM",), top),
    ):
        for name in names:
            old = OLD.get(name, name)
            kind = type(old, (getattr(origin, name),), {"__module__": place.__name__})
            setattr(place, old, kind)
    before = {key: sys.modules.pop(key, None) for key in ("module", "jepa")}
    sys.modules.update(module=made[0], jepa=made[1])
    try:
        yield made[0]
    finally:
        for key, value in before.items():
            del sys.modules[key]
            if value is not None:
                sys.modules[key] = value


def public_model(tree: dict[str, Any], family: Family = "lewm", *, old: bool = False) -> nn.Module:
    """A model of the public classes, or of the paper's, with the sizes of a ``config.json``."""
    module = sys.modules["module"] if old else public_module(f"wm.{family}.module")
    top = sys.modules["jepa"] if old else public_module(f"wm.{family}.{family}")
    kind = "JEPA" if old else "LeWM" if family == "lewm" else "PLDM"
    predictor = module.ARPredictor if old else module.Predictor
    made = {part: {k: v for k, v in keys.items() if k[0] != "_"}
            for part, keys in tree.items() if isinstance(keys, dict)}  # fmt: skip
    vit = ViTConfig(**made["encoder"])
    heads = [{**made[head], "norm_fn": nn.BatchNorm1d} for head in ("projector", "pred_proj")]
    model: nn.Module = getattr(top, kind)(
        ViTModel(vit, add_pooling_layer=False, use_mask_token=False),
        predictor(**made["predictor"]),
        module.Embedder(**made["action_encoder"]),
        *(module.MLP(**head) for head in heads),
    )
    return model.eval()


def world_model(family: Family = "lewm", *, old: bool = False, seed: int = 0) -> nn.Module:
    """A model of the public classes, with open gates and statistics that are not trivial."""
    torch.manual_seed(seed)
    model = public_model(SMALL, family, old=old)
    for name, values in [*model.named_parameters(), *model.named_buffers()]:
        if values.is_floating_point():
            scale = values.shape[-1] ** -0.5 if values.ndim > 1 else 0.1
            nn.init.normal_(values.data, std=scale)
            if name.endswith("running_var"):
                values.data.abs_().add_(0.5)
    return model


def wrapped(model: nn.Module, wrapping: Wrapping, beside: str = "sigreg") -> object:
    """What a training script may hand to ``torch.save`` in place of the model."""
    if wrapping == "training":
        from lightning import LightningModule

        module = LightningModule()
        module.model = model
        setattr(module, beside, nn.Linear(2, 2))
        return module
    makes = {
        "bare": lambda: model,
        "parallel": lambda: nn.DataParallel(model),
        "compiled": lambda: torch.compile(model),
        "dict": lambda: {"epoch": 7, "model": model, "optimizer": {"state": {}}},
    }
    return makes[wrapping]()


def lightning_file(model: nn.Module, path: Path, beside: str = "sigreg") -> None:
    """What Lightning's own Trainer saves of a training module."""
    from lightning import Trainer

    trainer = Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    module: Any = wrapped(model, "training", beside)
    module.configure_optimizers = partial(torch.optim.AdamW, module.parameters())
    trainer.strategy.connect(module)
    trainer.save_checkpoint(path, weights_only=True)


def paper_run(folder: Path, *, epochs: tuple[int, ...] = (1, 2), config: Any = None) -> nn.Module:
    """A run folder of the paper's released code; returns the model of its last epoch."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config or FLAT))
    with paper_classes("lewm"):
        for epoch in epochs:
            model = world_model(old=True, seed=epoch)
            torch.save(model, folder / f"lewm_epoch_{epoch}_object.ckpt")
        lightning_file(model, folder / "lewm_weights.ckpt")
    return model


if __name__ == "__main__":  # writes the files of tests/server/importing/files
    target = Path(sys.argv[1])
    paper_run(target / "paper-run", epochs=(2,))
    with paper_classes("pldm"):
        pickled = world_model("pldm", old=True)
        torch.save(wrapped(pickled, "training", "idm"), target / "pldm_training_object.ckpt")
    torch.save(wrapped(world_model(), "compiled"), target / "lewm_compiled_object.ckpt")
