"""CertifyPool and ComparePair beside two plain scripts: processor time of all, in turns.

    python benchmarks/plain.py [--rounds 24] [--calls 20] [--compiles now] [--out FILE]

A plain script is what a user would write without the product: it draws a noisy view, encodes
history, view and goal in one batch, rolls the pool out and takes costs and distances. It computes
with torch alone, from a checkpoint folder's own files; nothing of the product takes part. The best
one has modulations of all steps and layers as one product, computes only the last token in the last
layer, and folds normalisations that are linear into the weights; the ordinary one (``ordinary.py``)
uses the modules of the public layout as they are. Noise is drawn with torch's generator: other
numbers than the server's, the same work. The served side counts the server's process, all threads,
and the client's. Before anything is timed the costs of the clean history must agree.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from acpc.contract import GaussianNoise
from acpc_client import AcpcClient, PairComparison
from common import CHECKPOINTS, Spent, alternated, run, spent
from ordinary import OrdinaryModel
from server_process import ServerProcess
from torch import Tensor
from torch.nn import functional as F
from waiting import wait_until

MODEL, SIGMA, ELITES, PAIR_STEPS = "two-room-augmented", 0.08, 8, 8
MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
STD = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
Weights = tuple[Tensor, Tensor | None]


class Model(Protocol):
    """A script's model."""

    def encode(self, frames: Tensor) -> Tensor:
        """Latents (n, dim) of normalised frames (n, 3, h, w)."""

    def roll(self, histories: Tensor, blocks: Tensor) -> Tensor:
        """Predictions (v, j, H, dim) of histories (v, h, dim), blocks (j, h - 1 + H, width)."""


class PlainModel:
    """LeWM's inference, written from its configuration and the names of its tensors."""

    def __init__(self, folder: Path) -> None:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.w: dict[str, Tensor] = torch.load(folder / "weights.pt", weights_only=True)
        encoder, predictor = config["encoder"], config["predictor"]
        self.side, self.width = encoder["image_size"], config["action_encoder"]["input_dim"]
        self.heads = encoder.get("num_attention_heads", 3)
        self.p_heads, self.window = predictor["heads"], predictor["num_frames"]
        at, names = "encoder.layers", [f"attention.{name}_proj" for name in "qkvo"]
        names += ["mlp.fc1", "mlp.fc2"]
        self.layers = [
            (
                self._norm(f"{at}.{i}.layernorm_before"),
                self._joined([f"{at}.{i}.{name}" for name in names[:3]]),
                self._linear(f"{at}.{i}.{names[3]}"),
                self._norm(f"{at}.{i}.layernorm_after"),
                *(self._linear(f"{at}.{i}.{name}") for name in names[4:]),
            )
            for i in range(encoder.get("num_hidden_layers", 12))
        ]
        t = "predictor.transformer"
        self.blocks = [
            (
                self._norm(f"{t}.layers.{i}.attn.norm"),
                self._linear(f"{t}.layers.{i}.attn.to_qkv"),
                self._linear(f"{t}.layers.{i}.attn.to_out.0"),
                self._norm(f"{t}.layers.{i}.mlp.net.0"),
                self._linear(f"{t}.layers.{i}.mlp.net.1"),
                self._linear(f"{t}.layers.{i}.mlp.net.4"),
            )
            for i in range(predictor["depth"])
        ]
        self.modulations = self._joined(
            [f"{t}.layers.{i}.adaLN_modulation.1" for i in range(len(self.blocks))]
        )
        self.projector, self.pred_proj = self._head("projector"), self._head("pred_proj")

    def _linear(self, name: str) -> Weights:
        return self.w[f"{name}.weight"], self.w.get(f"{name}.bias")

    def _norm(self, name: str) -> tuple[Tensor, Tensor]:
        return self.w[f"{name}.weight"], self.w[f"{name}.bias"]

    def _joined(self, names: list[str]) -> Weights:
        """Several maps of the same input as one."""
        weight = torch.cat([self.w[f"{name}.weight"] for name in names])
        return weight, torch.cat([self.w[f"{name}.bias"] for name in names])

    def _head(self, name: str) -> tuple[Weights, Weights]:
        """A projection; its batch norm is folded into the map before."""
        w, b = self._norm(f"{name}.net.0")
        gain, shift = self._norm(f"{name}.net.1")
        mean, var = (self.w[f"{name}.net.1.running_{x}"] for x in ("mean", "var"))
        scale = gain / (var + 1e-5).sqrt()
        return (w * scale[:, None], (b - mean) * scale + shift), self._linear(f"{name}.net.3")

    def encode(self, frames: Tensor) -> Tensor:
        """Latents (n, dim) of normalised frames (n, 3, h, w)."""
        w, base = self.w, "encoder.embeddings"
        kernel, bias = self._linear(f"{base}.patch_embeddings.projection")
        patches = F.conv2d(frames, kernel, bias, stride=kernel.shape[-1])
        cls = w[f"{base}.cls_token"].expand(len(frames), -1, -1)
        x = torch.cat([cls, patches.flatten(2).transpose(1, 2)], 1)
        x = x + w[f"{base}.position_embeddings"]
        for index, (before, qkv, out, after, rise, fall) in enumerate(self.layers):
            y = F.layer_norm(x, x.shape[-1:], *before, 1e-12)
            q, k, v = heads_of(F.linear(y, *qkv), self.heads)
            if index == len(self.layers) - 1:  # CLS alone leaves the encoder
                x, q = x[:, :1], q[:, :, :1]
            x = x + F.linear(joined(F.scaled_dot_product_attention(q, k, v)), *out)
            y = F.layer_norm(x, x.shape[-1:], *after, 1e-12)
            x = x + F.linear(F.gelu(F.linear(y, *rise)), *fall)
        x = F.layer_norm(x[:, 0], x.shape[-1:], *self._norm("encoder.layernorm"), 1e-12)
        return head(x, self.projector)

    def modulate(self, blocks: Tensor) -> Tensor:
        """Shifts, scales and gates (layers, six, b, t, width) of blocks (b, t, width)."""
        at, t = "action_encoder", "predictor.transformer"
        kernel, bias = self._linear(f"{at}.patch_embed")
        x = F.linear(blocks, kernel[..., 0], bias)
        x = F.linear(F.silu(F.linear(x, *self._linear(f"{at}.embed.0"))),
                     *self._linear(f"{at}.embed.2"))  # fmt: skip
        if f"{t}.cond_proj.weight" in self.w:
            x = F.linear(x, *self._linear(f"{t}.cond_proj"))
        found = F.linear(F.silu(x), *self.modulations)
        found = found.unflatten(-1, (len(self.blocks), 6, -1)).permute(2, 3, 0, 1, 4).contiguous()
        found[:, 1::3] += 1  # scales
        return found

    def predict(self, latents: Tensor, modulations: Tensor) -> Tensor:
        """The latent (v, j, dim) after windows (v, j, t, dim) under (layers, six, j, t, width)."""
        t = "predictor.transformer"
        x = latents + self.w["predictor.pos_embedding"][:, : latents.shape[2]]
        if f"{t}.input_proj.weight" in self.w:
            x = F.linear(x, *self._linear(f"{t}.input_proj"))
        for index, (before, qkv, out, after, rise, fall) in enumerate(self.blocks):
            shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = modulations[index]
            y = torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=1e-6), scale)
            y = F.layer_norm(y, y.shape[-1:], *before, 1e-5)
            last = index == len(self.blocks) - 1
            q, k, z = heads_of(F.linear(y, *qkv).flatten(0, 1), self.p_heads)
            if last:
                q, x = q[:, :, -1:], x[:, :, -1:]
                gate, mlp_shift, mlp_scale, mlp_gate = (
                    part[:, -1:] for part in (gate, mlp_shift, mlp_scale, mlp_gate)
                )
            mixed = joined(F.scaled_dot_product_attention(q, k, z, is_causal=not last))
            x = torch.addcmul(x, gate, F.linear(mixed, *out).view(x.shape))
            y = torch.addcmul(mlp_shift, F.layer_norm(x, x.shape[-1:], eps=1e-6), mlp_scale)
            y = F.layer_norm(y, y.shape[-1:], *after, 1e-5)
            x = torch.addcmul(x, mlp_gate, F.linear(F.gelu(F.linear(y, *rise)), *fall))
        x = F.layer_norm(x[:, :, -1], x.shape[-1:], *self._norm(f"{t}.norm"), 1e-5)
        if f"{t}.output_proj.weight" in self.w:
            x = F.linear(x, *self._linear(f"{t}.output_proj"))
        return head(x, self.pred_proj)

    def roll(self, histories: Tensor, blocks: Tensor) -> Tensor:
        """Predictions (v, j, H, dim) of histories (v, h, dim), blocks (j, h - 1 + H, width)."""
        h, modulations = histories.shape[1], self.modulate(blocks)
        latents = list(histories[:, None].expand(-1, len(blocks), -1, -1).unbind(2))
        for end in range(h, blocks.shape[1] + 1):
            span = slice(max(0, end - self.window), end)
            window = torch.stack(latents[span], 2)
            latents.append(self.predict(window, modulations[..., span, :]))
        return torch.stack(latents[h:], 2)


def heads_of(x: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Queries, keys and values (b, heads, t, d) of a product (b, t, 3 * heads * d)."""
    return x.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)


def joined(x: Tensor) -> Tensor:
    """Heads (b, heads, t, d) side by side, (b, t, heads * d)."""
    return x.transpose(1, 2).flatten(2)


def head(x: Tensor, maps: tuple[Weights, Weights]) -> Tensor:
    """A projection (..., in) to (..., out)."""
    return F.linear(F.gelu(F.linear(x, *maps[0])), *maps[1])


def frames_of(pixels: np.ndarray) -> Tensor:
    """Normalised frames (n, 3, h, w) of bytes (n, h, w, 3)."""
    return (torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255 - MEAN) / STD


def noisy(clean: Tensor) -> Tensor:
    """A noisy view of normalised frames."""
    return clean + torch.randn_like(clean) * (SIGMA / STD)


@torch.inference_mode()
def plain_pool(model: Model, given: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Costs (2, J) of the history and a view, and how far the view moves each endpoint, (J,)."""
    clean, goal = frames_of(given["history"]), frames_of(given["goal"][None])
    latents = model.encode(torch.cat([clean, noisy(clean), goal]))
    past, pool = (torch.from_numpy(given[name]) for name in ("past_blocks", "candidates"))
    blocks = torch.cat([past.expand(len(pool), -1, -1), pool], 1)
    ends = model.roll(latents[:-1].unflatten(0, (2, -1)), blocks)[:, :, -1].double()
    costs = (ends - latents[-1].double()).square().sum(-1)
    return costs.numpy(), (ends[1] - ends[0]).norm(dim=-1).numpy()


@torch.inference_mode()
def plain_pair(model: Model, given: dict[str, np.ndarray]) -> float:
    """ACPC of one noisy view."""
    clean = frames_of(given["history"])
    latents = model.encode(torch.cat([clean, noisy(clean)])).unflatten(0, (2, -1))
    out = model.roll(latents, torch.from_numpy(given["action_blocks"][None])).double()
    return float((out[1] - out[0]).square().sum(-1).mean().sqrt())


def pool_input(model: PlainModel, rng: np.random.Generator, steps: int = 5) -> dict[str, Any]:
    """A moment and a pool that nobody has asked for before."""
    shape, width = (model.side, model.side, 3), model.width
    return {
        "history": rng.integers(0, 256, (model.window, *shape), dtype=np.uint8),
        "goal": rng.integers(0, 256, shape, dtype=np.uint8),
        "past_blocks": rng.standard_normal((model.window - 1, width), np.float32),
        "candidates": rng.standard_normal((64, steps, width), np.float32),
    }


def pair_input(model: PlainModel, rng: np.random.Generator) -> dict[str, Any]:
    """A history and its actions, likewise."""
    shape = (model.window, model.side, model.side, 3)
    blocks = rng.standard_normal((model.window - 1 + PAIR_STEPS, model.width), np.float32)
    return {"history": rng.integers(0, 256, shape, dtype=np.uint8), "action_blocks": blocks}


def beside(
    ask: Callable[..., object], scripts: Mapping[str, Callable[..., object]],
    inputs: Callable[[], dict[str, Any]], pid: int, rounds: int, calls: int,
) -> dict[str, Any]:  # fmt: skip
    """Processor and wall milliseconds of a call, served and by scripts, in turns of ``calls``."""

    def turn(call: Callable[..., object], *pids: int) -> Spent:
        work = [partial(call, given) for given in [inputs() for _ in range(calls)]]
        found = spent(lambda: [one() for one in work], *pids)
        return Spent(found.processor / calls, found.wall / calls)

    ways = {"served": partial(turn, ask, pid)}
    ways |= {name: partial(turn, script) for name, script in scripts.items()}
    alternated(ways, 2)  # warm
    took = alternated(ways, rounds)
    report: dict[str, Any] = {
        way: {
            "processor_ms": quartiles([1e3 * one.processor for one in turns]),
            "wall_ms": quartiles([1e3 * one.wall for one in turns]),
        }
        for way, turns in took.items()
    }
    for name in scripts:
        pairs = zip(took["served"], took[name], strict=True)
        report[f"over_{name}"] = quartiles([a.processor / b.processor for a, b in pairs])
    return report


def quartiles(values: list[float]) -> dict[str, float]:
    """Lower quartile, median and upper quartile."""
    names = ("lower", "median", "upper")
    return dict(zip(names, statistics.quantiles(values), strict=True))


def report(
    rounds: int = 24, calls: int = 20, checkpoints: Path = CHECKPOINTS, checkpoint: str = MODEL,
    compiles: str = "off", options: str = "",
) -> dict[str, Any]:  # fmt: skip
    """So many rounds of so many calls, by eager steps, or compiled ones (``--compiles now``).

    ``options`` are ACPC_* variables of the server, A=1,B=2.
    """
    torch.set_num_threads(1)
    folder = checkpoints / checkpoint
    rng, plain = np.random.default_rng(0), PlainModel(folder)
    pools, pairs = partial(pool_input, plain, rng), partial(pair_input, plain, rng)
    environment = {"ACPC_COMPILE": compiles}
    environment |= dict(one.split("=") for one in options.split(",") if one)
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "data").mkdir()
        folders = Path(checkpoints), Path(name) / "data", Path(name) / "state"
        with ServerProcess(*folders, environment=environment) as server, AcpcClient(
            server.address
        ) as client:  # fmt: skip
            noise: dict[str, Any] = {"perturbations": GaussianNoise(SIGMA)}

            def pool(given: dict[str, Any]) -> np.ndarray:
                answer = client.certify_pool(checkpoint, **given, **noise, elite_count=ELITES)
                return answer.clean_costs

            def pair(given: dict[str, Any]) -> PairComparison:
                return client.compare_pair(checkpoint, **given, **noise)

            models: dict[str, Model] = {"best": plain, "ordinary": OrdinaryModel(folder)}
            for model in models.values():
                given = pools()
                np.testing.assert_allclose(plain_pool(model, given)[0][0], pool(given), rtol=1e-3)
            if compiles == "now":  # each call looks whether it is there
                wait_until(lambda: pair(pairs()).receipt.program == "inductor", seconds=900)
            measure = partial(beside, pid=server.pid, rounds=rounds, calls=calls)
            by_pool = {name: partial(plain_pool, model) for name, model in models.items()}
            by_pair = {name: partial(plain_pair, model) for name, model in models.items()}
            return {"pool": measure(pool, by_pool, pools), "pair": measure(pair, by_pair, pairs)}


if __name__ == "__main__":
    run(report)
