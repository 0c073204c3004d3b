"""One full IR + SR job at the paper's size, against the straightforward path, in one run.

    python benchmarks/score_job.py [--anchors 100] [--rounds 5] [--out FILE]

The job is the server's own code path (shards on the device engine, every frame encoded once). The
straightforward path is what a script around the public model does: for every draw, encode all
frames of the window again and roll both histories forward. Both use the same network, the same
frames and the same draws, and must give the same IR and SR. The server computes in bfloat16 once
more, against the same straightforward path in float32. Each way measures a few anchors first.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from acpc.contract import (
    AnchorArrays,
    AnchorSource,
    CheckpointRef,
    GaussianNoise,
    NumericMode,
    ScoreProtocol,
)
from acpc.datasets import median_split_labels
from acpc_server.data import Anchors
from acpc_server.engine import DeviceClient
from acpc_server.models import FrozenWorldModel, rollout
from acpc_server.models.loader import load_checkpoint
from acpc_server.numerics import consistency, screening
from acpc_server.numerics.pairing import pair_different_labels
from acpc_server.numerics.pixels import to_model_input
from acpc_server.observe import Metrics
from acpc_server.perturb import perturb_frames
from acpc_server.scheduling import Priority, RequestContext
from acpc_server.scoring.measuring import CheckpointMeasurement, ShardRecord
from acpc_server.scoring.score import summarise_checkpoint
from acpc_server.scoring.spec import ScoreSpec
from common import ROUNDS, Spent, alternated, ratio, run, spent, spread
from load import elsewhere
from public_checkpoint import Size, public_config, write_checkpoint
from score_specs import bench_of
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

HISTORY, HORIZON, DRAWS, SIGMA = 3, 8, 5, 0.08
WARM = 4  # anchors


def make_anchors(count: int, side: int) -> Anchors:
    """Windows of smooth random frames; the arithmetic does not care what they show."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (count, HISTORY + HORIZON, side // 16, side // 16, 3), np.uint8)
    states = rng.standard_normal((count, 4))
    arrays = AnchorArrays(
        history=HISTORY,
        frames=coarse.repeat(16, axis=2).repeat(16, axis=3),
        action_blocks=rng.standard_normal((count, HISTORY + HORIZON - 1, 10)).astype(np.float32),
        endpoint_states=states,
        labels=median_split_labels(states[:, :1]),
        anchor_ids=np.arange(count, dtype=np.int64),
        trajectory_ids=np.arange(count, dtype=np.int64),
    )
    return Anchors(arrays)


def server_path(
    engine: DeviceClient, model: FrozenWorldModel, anchors: Anchors, plan: ScoreSpec
) -> dict[str, Any]:
    """The job as the server runs it, shard by shard."""
    context = RequestContext(Priority.JOB)
    bench = bench_of(engine, model, anchors, plan.numeric_mode, context)
    measurement = CheckpointMeasurement(bench, plan)
    record = ShardRecord.concatenate([measurement.shard(rows) for rows in plan.shards()])
    labels = torch.from_numpy(anchors.labels)
    pairs = pair_different_labels(torch.from_numpy(anchors.endpoint_states), labels)
    partner = pairs.partner.numpy()
    distances = measurement.different_state_distances(record, partner)
    summary = summarise_checkpoint(plan, record, distances, partner)
    return {**summary, "device_seconds": context.compute_seconds}


@torch.inference_mode()
def straightforward_path(model: FrozenWorldModel, anchors: Anchors, batch: int) -> dict[str, float]:
    """For every draw, encode every frame of the clean-future window again and roll out again."""
    size = model.card.image_size
    blocks = torch.from_numpy(anchors.action_blocks).to(model.device)
    weights = consistency.horizon_weights((), HORIZON)

    def encode(windows: Tensor) -> Tensor:
        flat = windows.flatten(0, 1)
        parts = torch.split(flat, batch)
        latents = torch.cat([model.encode(part.to(model.device)) for part in parts])
        return latents.reshape(*windows.shape[:2], -1)

    frames = anchors.read_frames(0, anchors.count)
    windows = to_model_input(torch.from_numpy(frames).flatten(0, 1), size)
    windows = windows.reshape(*frames.shape[:2], *windows.shape[1:])
    clean = encode(windows)
    moves = screening.transitions(clean[:, HISTORY - 1 :].cpu())
    scale = screening.motion_scale(moves)
    radii = []
    for draw in range(DRAWS):
        perturbed = windows.clone()
        for row, anchor in enumerate(anchors.anchor_ids.tolist()):
            perturbed[row, :HISTORY] = perturb_frames(
                windows[row, :HISTORY], GaussianNoise(sigma=SIGMA), seed=0, anchor=anchor, draw=draw
            )
        latents = encode(perturbed)
        pair = [rollout(model, x[:, :HISTORY], blocks).cpu() for x in (clean, latents)]
        radii.append(consistency.acpc(consistency.step_distances(*pair), weights))
    radius = screening.normalised_radius(torch.stack(radii, dim=1), scale)
    ir_raw = screening.invariance_radius(radius, 0.9)
    labels = torch.from_numpy(anchors.labels)
    partner = pair_different_labels(torch.from_numpy(anchors.endpoint_states), labels).partner
    kept = partner >= 0
    other = torch.cat([blocks[partner[kept], : HISTORY - 1], blocks[kept, HISTORY - 1 :]], dim=1)
    distance = screening.different_state_distance(
        rollout(model, clean[kept, :HISTORY], blocks[kept]).cpu(),
        rollout(model, clean[partner[kept], :HISTORY], other).cpu(),
        weights,
        scale[kept],
    )
    return {"ir_raw": ir_raw, "sr": screening.separation_rate(distance, ir_raw, 0.1)}


def count_flops(model: FrozenWorldModel, anchors: Anchors) -> dict[str, float]:
    """FLOPs of one encoded frame and one rollout; attention is spelled out to be counted."""
    size = model.card.image_size
    frames = to_model_input(torch.from_numpy(anchors.read_frames(0, 1)[0, :2]), size).to(
        model.device
    )
    counts = {}
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        latents = model.encode(frames)
    counts["encode_frame"] = counter.get_total_flops() / len(frames)
    history = latents.new_zeros(1, HISTORY, latents.shape[1])
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        rollout(model, history, torch.from_numpy(anchors.action_blocks[:1]).to(model.device))
    counts["rollout"] = float(counter.get_total_flops())
    return counts


def matmul_rates(device: str, dtype: torch.dtype = torch.float32) -> Spent:
    """Best rates of a matrix product now, FLOP/s: by processor time, and on the clock."""
    side = 2048 if device == "cpu" else 8192
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))

    def product() -> None:
        a @ b
        if device != "cpu":
            torch.cuda.synchronize()

    turns = [timed(product, device) for _ in range(12)]
    operations = 2 * side**3
    cores = torch.get_num_threads() if device == "cpu" else 1
    return Spent(
        operations * cores / min(turn.processor for turn in turns),
        operations / min(turn.wall for turn in turns),
    )


def timed(work: Callable[[], object], device: str) -> Spent:
    """What ``work`` takes; on an accelerator the clock alone tells."""
    took = spent(work)
    return took if device == "cpu" else Spent(took.wall, took.wall)


def load_model(device: str, size: Size = "paper") -> FrozenWorldModel:
    """A checkpoint with random weights, by default of the published size."""
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder) / "model", public_config(size))
        return load_checkpoint(Path(folder), "model", device=torch.device(device))


def measure_server(count: int, size: Size, device: str, mode: int) -> dict[str, Any]:
    """The server's path in a process set up as the server's is."""
    engine = DeviceClient(torch.device(device), Metrics(), threads=torch.get_num_threads())
    torch.set_num_threads(1)
    model = load_model(device, size)
    result: dict[str, Any] = {}

    def job(anchors: Anchors) -> Callable[[], None]:
        plan = ScoreSpec(
            checkpoint=CheckpointRef(name="model", weights="weights.pt", digest=model.card.digest),
            reference=None,
            anchors=AnchorSource(dataset="synthetic", task="synthetic", count=anchors.count),
            shift=GaussianNoise(sigma=SIGMA),
            protocol=ScoreProtocol(draws=DRAWS, horizon=HORIZON),
            numeric_mode=NumericMode(mode),
        )
        return lambda: result.update(server_path(engine, model, anchors, plan))

    warm, anchors = (make_anchors(n, model.card.image_size) for n in (WARM, count))
    job(warm)()
    took = timed(job(anchors), device)
    engine.close()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"spent": took, "peak_memory_bytes": memory, **result}


def measure_plain(count: int, size: Size, batch: int, device: str) -> dict[str, Any]:
    """The straightforward path, with torch as it comes; and the machine's peak and the FLOPs."""
    model = load_model(device, size)
    warm, anchors = (make_anchors(n, model.card.image_size) for n in (WARM, count))
    before = matmul_rates(device)
    result: dict[str, Any] = straightforward_path(model, warm, batch)
    took = timed(lambda: result.update(straightforward_path(model, anchors, batch)), device)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peak = max(before, matmul_rates(device))
    flops = count_flops(model, anchors)
    return {
        "spent": took,
        "peak_memory_bytes": memory,
        "matmul_peak": peak,
        "flops": flops,
        **result,
    }


def report(
    anchors: int = 100,
    batch: int = 55,
    device: str = "cpu",
    rounds: int = ROUNDS,
    size: str = "paper",
) -> dict[str, Any]:
    """All ways in turns; the straightforward path encodes so many frames a batch."""
    asked: dict[str, tuple[Any, ...]] = {
        "server": (measure_server, anchors, size, device, NumericMode.FP32.value),
        "bf16": (measure_server, anchors, size, device, NumericMode.BF16.value),
        "plain": (measure_plain, anchors, size, batch, device),
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in asked}

    def turn(name: str) -> Spent:
        found[name].append(cast("dict[str, Any]", elsewhere(*asked[name])))
        took: Spent = found[name][-1]["spent"]
        return took

    took = alternated({name: partial(turn, name) for name in asked}, rounds)
    ours, reduced, plain = (found[name][-1] for name in asked)
    flops = plain["flops"]
    frames = anchors * (HISTORY + HORIZON + DRAWS * HISTORY)
    rollouts = anchors * (1 + DRAWS + 2)
    work = frames * flops["encode_frame"] + rollouts * flops["rollout"]
    cores = torch.get_num_threads() if device == "cpu" else 1
    seconds = {name: spread([one.wall for one in turns]) for name, turns in took.items()}
    shares = [
        cores * work / one.processor / other["matmul_peak"].processor
        for one, other in zip(took["server"], found["plain"], strict=True)
    ]
    return {
        "threads": torch.get_num_threads(),
        "device": device,
        "job": {"anchors": anchors, "draws": DRAWS, "horizon": HORIZON},
        "processor_seconds": {
            name: spread([one.processor for one in turns]) for name, turns in took.items()
        },
        "server_seconds": seconds["server"],
        "straightforward_seconds": seconds["plain"],
        "ratio": ratio(took["plain"], took["server"]),
        "bf16": {
            "server_seconds": seconds["bf16"],
            "ratio": ratio(took["plain"], took["bf16"]),
            "ir_raw_difference": abs(reduced["ir_raw"] - plain["ir_raw"]) / plain["ir_raw"],
            "sr_difference": abs(reduced["sr"] - plain["sr"]),
        },
        "frames_encoded": {
            "server": frames,
            "straightforward": anchors * (HISTORY + HORIZON) * (1 + DRAWS),
        },
        "flops": {**flops, "job": work},
        "matmul_peak_flops_per_second": max(one["matmul_peak"].wall for one in found["plain"]),
        "share_of_peak": spread(shares),
        "peak_memory_bytes": {
            "server": ours["peak_memory_bytes"],
            "straightforward": plain["peak_memory_bytes"],
        },
        "relative_difference": {
            "ir_raw": abs(ours["ir_raw"] - plain["ir_raw"]) / plain["ir_raw"],
            "sr": abs(ours["sr"] - plain["sr"]),
        },
    }


if __name__ == "__main__":
    run(report)
