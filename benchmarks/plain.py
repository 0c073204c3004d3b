"""What a user would write without the product: encode, roll out and cost a pool; plain torch.

    python benchmarks/plain.py [--pool 64 --views 5 --steps 5 --calls 200 --threads 1]

Nothing of the product is imported. A checkpoint folder is read as LeWM's own code reads it. Noise
is drawn with torch's generator: other numbers than the server's, the same work. Prints processor
milliseconds of a pool and of a pair of views: median and quartiles.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

DEMO = Path(__file__).resolve().parent.parent / "examples/two_room/checkpoints/two-room-augmented"
MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
STD = torch.tensor([0.229, 0.224, 0.225])[:, None, None]


class PlainModel:
    """LeWM's inference, written from its configuration and the names of its tensors."""

    def __init__(self, folder: Path) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.w: dict[str, Tensor] = torch.load(folder / "weights.pt", weights_only=True)
        self.heads = self.config["encoder"].get("num_attention_heads", 3)
        predictor = self.config["predictor"]
        self.p_heads, self.depth = predictor["heads"], predictor["depth"]
        self.window = predictor["num_frames"]
        self.old_names = any(".attention.attention." in name for name in self.w)

    def linear(self, x: Tensor, name: str) -> Tensor:
        """A linear map (..., in) to (..., out)."""
        return F.linear(x, self.w[f"{name}.weight"], self.w.get(f"{name}.bias"))

    def norm(self, x: Tensor, name: str, eps: float) -> Tensor:
        """A layer norm."""
        return F.layer_norm(x, x.shape[-1:], self.w[f"{name}.weight"], self.w[f"{name}.bias"], eps)

    def head(self, x: Tensor, name: str) -> Tensor:
        """A projection (n, in) to (n, out)."""
        x = self.linear(x, f"{name}.net.0")
        w = {key: self.w[f"{name}.net.1.{key}"] for key in ("weight", "bias")}
        moments = (self.w[f"{name}.net.1.running_mean"], self.w[f"{name}.net.1.running_var"])
        x = F.batch_norm(x, *moments, **w, training=False)
        return self.linear(F.gelu(x), f"{name}.net.3")

    def encode(self, frames: Tensor) -> Tensor:
        """Latents (n, dim) of normalised frames (n, 3, h, w)."""
        w, base = self.w, "encoder.embeddings"
        kernel = w[f"{base}.patch_embeddings.projection.weight"]
        bias = w[f"{base}.patch_embeddings.projection.bias"]
        patches = F.conv2d(frames, kernel, bias, stride=kernel.shape[-1])
        tokens = patches.flatten(2).transpose(1, 2)
        cls = w[f"{base}.cls_token"].expand(len(frames), -1, -1)
        x = torch.cat([cls, tokens], 1) + w[f"{base}.position_embeddings"]
        for layer in range(self.config["encoder"].get("num_hidden_layers", 12)):
            x = self.layer(x, layer)
        return self.head(self.norm(x, "encoder.layernorm", 1e-12)[:, 0], "projector")

    def layer(self, x: Tensor, index: int) -> Tensor:
        """A layer of the encoder, (n, t, width)."""
        if self.old_names:
            at = f"encoder.encoder.layer.{index}"
            names = [f"attention.attention.{x}" for x in ("query", "key", "value")]
            names += ["attention.output.dense", "intermediate.dense", "output.dense"]
        else:
            at = f"encoder.layers.{index}"
            names = [f"attention.{x}_proj" for x in "qkvo"] + ["mlp.fc1", "mlp.fc2"]
        q, k, v, o, rise, fall = (f"{at}.{name}" for name in names)
        y = self.norm(x, f"{at}.layernorm_before", 1e-12)
        parts = [
            self.linear(y, n).unflatten(-1, (self.heads, -1)).transpose(1, 2) for n in (q, k, v)
        ]
        x = x + self.linear(F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2), o)
        y = self.norm(x, f"{at}.layernorm_after", 1e-12)
        return x + self.linear(F.gelu(self.linear(y, rise)), fall)

    def actions(self, blocks: Tensor) -> Tensor:
        """Embeddings (b, t, dim) of blocks (b, t, width)."""
        at = "action_encoder"
        kernel, bias = self.w[f"{at}.patch_embed.weight"], self.w[f"{at}.patch_embed.bias"]
        x = F.conv1d(blocks.transpose(1, 2), kernel, bias).transpose(1, 2)
        return self.linear(F.silu(self.linear(x, f"{at}.embed.0")), f"{at}.embed.2")

    def predict(self, latents: Tensor, actions: Tensor) -> Tensor:
        """The latent (b, dim) after a window of latents and actions (b, t, dim)."""
        p = "predictor"
        x = latents + self.w[f"{p}.pos_embedding"][:, : latents.shape[1]]
        t, c = f"{p}.transformer", actions
        if f"{t}.input_proj.weight" in self.w:
            x = self.linear(x, f"{t}.input_proj")
            c = self.linear(c, f"{t}.cond_proj")
        for layer in range(self.depth):
            at = f"{t}.layers.{layer}"
            six = self.linear(F.silu(c), f"{at}.adaLN_modulation.1").chunk(6, -1)
            shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = six
            y = F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift
            y = self.norm(y, f"{at}.attn.norm", 1e-5)
            q, k, v = (
                z.unflatten(-1, (self.p_heads, -1)).transpose(1, 2)
                for z in self.linear(y, f"{at}.attn.to_qkv").chunk(3, -1)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            x = x + gate * self.linear(y, f"{at}.attn.to_out.0")
            y = F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + mlp_scale) + mlp_shift
            y = self.norm(y, f"{at}.mlp.net.0", 1e-5)
            y = self.linear(F.gelu(self.linear(y, f"{at}.mlp.net.1")), f"{at}.mlp.net.4")
            x = x + mlp_gate * y
        x = self.norm(x, f"{t}.norm", 1e-5)[:, -1]
        if f"{t}.output_proj.weight" in self.w:
            x = self.linear(x, f"{t}.output_proj")
        return self.head(x, "pred_proj")

    def roll(self, histories: Tensor, blocks: Tensor) -> Tensor:
        """Predictions (b, H, dim) of histories (b, h, dim) under blocks (b, h - 1 + H, width)."""
        h, actions = histories.shape[1], self.actions(blocks)
        latents = list(histories.unbind(1))
        for end in range(h, blocks.shape[1] + 1):
            start = max(0, end - self.window)
            latents.append(self.predict(torch.stack(latents[start:end], 1), actions[:, start:end]))
        return torch.stack(latents[h:], 1)


def views_of(history: Tensor, sigma: float, draws: int) -> Tensor:
    """The clean history and its noisy views (1 + draws, h, 3, height, width), normalised."""
    clean = (history.permute(0, 3, 1, 2) / 255 - MEAN) / STD
    noise = torch.randn(draws, *clean.shape) * (sigma / STD)
    return torch.cat([clean[None], clean + noise])


def pool(model: PlainModel, history: Tensor, goal: Tensor, past: Tensor, candidates: Tensor,
         draws: int) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Costs (views, J) and endpoint distances (draws, J) of a pool under noise."""
    seen = views_of(history, 0.05, draws)
    target = (goal.permute(2, 0, 1) / 255 - MEAN) / STD
    latents = model.encode(torch.cat([seen.flatten(0, 1), target[None]]))
    histories, aim = latents[:-1].unflatten(0, seen.shape[:2]), latents[-1].double()
    views, count = len(seen), len(candidates)
    rows = histories.repeat_interleave(count, 0)
    blocks = torch.cat([past.expand(count, -1, -1), candidates], 1).repeat(views, 1, 1)
    ends = model.roll(rows, blocks).unflatten(0, (views, count))[:, :, -1].double()
    return (ends - aim).square().sum(-1), (ends[1:] - ends[0]).norm(dim=-1)


def pair(model: PlainModel, history: Tensor, blocks: Tensor) -> Tensor:
    """ACPC of one noisy view, float64 scalar."""
    seen = views_of(history, 0.05, 1)
    histories = model.encode(seen.flatten(0, 1)).unflatten(0, seen.shape[:2])
    out = model.roll(histories, blocks.expand(2, -1, -1)).double()
    return (out[1] - out[0]).square().sum(-1).mean().sqrt()


def spent(call: Callable[[], object], calls: int) -> list[float]:
    """Processor milliseconds of each of ``calls`` calls, after a tenth as many."""
    for _ in range(calls // 10):
        call()
    found = []
    for _ in range(calls):
        before = time.process_time()
        call()
        found.append(1e3 * (time.process_time() - before))
    return found


def setting(folder: Path, candidates: int, steps: int) -> tuple[Any, ...]:
    """A model and random inputs of a pool: history, goal, past blocks, candidates."""
    model = PlainModel(folder)
    side = model.config["encoder"]["image_size"]
    width = model.config["action_encoder"]["input_dim"]
    torch.manual_seed(0)
    history = torch.randint(0, 256, (model.window, side, side, 3), dtype=torch.uint8)
    goal = torch.randint(0, 256, (side, side, 3), dtype=torch.uint8)
    past = torch.randn(model.window - 1, width)
    return model, history, goal, past, torch.randn(candidates, steps, width)


@torch.inference_mode()
def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, default=DEMO, help="default: the demo's")
    for name, default in (("pool", 64), ("views", 5), ("steps", 5), ("calls", 200), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default, help="default: %(default)s")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model, *inputs = setting(args.checkpoint, args.pool, args.steps)
    blocks = torch.cat([inputs[2], torch.randn(8, inputs[2].shape[1])])
    report = {}
    for name, call in (
        ("pool", lambda: pool(model, *inputs, args.views)),
        ("pair", lambda: pair(model, inputs[0], blocks)),
    ):
        report[name] = dict(
            zip(
                ("lower", "median", "upper"),
                statistics.quantiles(spent(call, args.calls)),
                strict=True,
            )
        )
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
