"""Absolute figures of one device at the paper's size: certificates, encoding, and a whole job.

    python benchmarks/device.py --device cuda [--calls 500] [--size small] [--out FILE]

CertifyPool 64 x 5 over loopback in float32 and bfloat16, each call one captured graph, beside the
public eager path on the same device; frames encoded a second
and the share of the matrix-product peak that is; and benchmarks/score_job.py. A small network tries
the same code, and its figures say nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from acpc.contract import NumericMode
from acpc_client import AcpcClient
from acpc_server.engine import choose_device, device_name
from acpc_server.numerics.pixels import to_model_input
from common import run
from load import quantiles
from ordinary import OrdinaryModel
from planning import CANDIDATES, ELITES, HISTORY, HORIZON, SIDE, WIDTH, public_costs
from public_checkpoint import Size, public_config, write_checkpoint
from score_job import count_flops, load_model, make_anchors, matmul_rates
from server_process import ServerProcess


def scene(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """History with one view, goal, past blocks and a pool."""
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (2, HISTORY, SIDE, SIDE, 3), dtype=np.uint8)
    goal = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    past = rng.standard_normal((HISTORY - 1, WIDTH)).astype(np.float32)
    pool = rng.standard_normal((CANDIDATES, HORIZON, WIDTH)).astype(np.float32)
    return frames, goal, past, pool


def served(root: Path, device: str, mode: NumericMode, calls: int) -> dict[str, Any]:
    """Latency of CertifyPool from another process."""
    with (
        ServerProcess(
            root / "checkpoints",
            root / "data",
            root / f"state-{mode.name}",
            device=device,
        ) as server,
        AcpcClient(server.address) as client,
    ):

        def ask(seed: int) -> float:
            frames, goal, past, pool = scene(seed)
            started = time.perf_counter()
            client.certify_pool(
                "model",
                frames[0],
                pool,
                goal,
                past_blocks=past,
                views=frames[1:],
                elite_count=ELITES,
                numeric_mode=mode,
            )
            return time.perf_counter() - started

        url = f"http://127.0.0.1:{server.metrics_port}/metrics"
        give_up = time.monotonic() + 300
        while True:
            ask(0)
            ready = b"acpc_graphs 1.0" in urllib.request.urlopen(url).read()
            if device == "cpu" or ready or time.monotonic() > give_up:
                break
        # Frames that differ, so that no call finds its latents kept.
        seconds = [ask(1 + seed) for seed in range(calls)]
    return {"captured": ready, **quantiles(seconds[calls // 10 :])}


@torch.inference_mode()
def eager(public: OrdinaryModel, side: int, bf16: bool, calls: int) -> dict[str, Any]:
    """The public way in process: both branches encoded and scored from their frames."""
    device = next(public.parameters()).device
    cast = torch.autocast(device.type, torch.bfloat16, enabled=bf16)
    seconds = []
    for seed in range(calls):
        frames, goal, past, pool = scene(seed)
        started = time.perf_counter()
        target = to_model_input(torch.from_numpy(goal[None]), side)[0].to(device)
        seen = [to_model_input(torch.from_numpy(x), side).to(device) for x in frames]
        given = (torch.from_numpy(past).to(device), target, torch.from_numpy(pool).to(device))
        with cast:
            public_costs(public, seen, *given)
        seconds.append(time.perf_counter() - started)
    return quantiles(seconds[calls // 10 :])


@torch.inference_mode()
def encoding(size: Size, device: str, batch: int, rounds: int) -> dict[str, Any]:
    """Frames a second of the encoder, and its share of the matrix-product peak."""
    model = load_model(device, size)
    side = model.card.image_size
    flops = count_flops(model, make_anchors(1, side))["encode_frame"]
    frames = torch.randn(batch, 3, side, side, device=device)
    found: dict[str, Any] = {"batch": batch, "flops_per_frame": flops}
    kind = torch.device(device).type
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with torch.autocast(kind, torch.bfloat16, enabled=dtype is torch.bfloat16):
            best = np.inf
            for _ in range(rounds):
                started = time.perf_counter()
                model.encode(frames).sum().item()
                best = min(best, time.perf_counter() - started)
        peak = matmul_rates(device, dtype).wall
        rate = batch / best
        found[name] = {
            "frames_per_second": rate,
            "matmul_peak_flops_per_second": peak,
            "share_of_peak": rate * flops / peak,
        }
    return found


def job(size: Size, device: str, anchors: int) -> dict[str, Any]:
    """benchmarks/score_job.py on the device."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "job.json"
        script = Path(__file__).with_name("score_job.py")
        options = [f"--anchors={anchors}", f"--device={device}", f"--size={size}"]
        options += [f"--out={out}", "--rounds=1"]
        subprocess.run([sys.executable, str(script), *options], check=True)
        found: dict[str, Any] = json.loads(out.read_text())
    return found


def report(
    device: str = "cuda",
    calls: int = 500,
    batch: int = 256,
    anchors: int = 100,
    rounds: int = 20,
    size: str = "paper",
) -> dict[str, Any]:
    """Certificates, encoder calls of a batch of frames, and the job."""
    chosen = cast("Size", size)
    config = public_config(chosen)
    certificates: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "data").mkdir()
        write_checkpoint(root / "checkpoints" / "model", config)
        public = OrdinaryModel(root / "checkpoints" / "model").to(device)
        side = config["encoder"]["image_size"]
        for mode in (NumericMode.FP32, NumericMode.BF16):
            name = mode.name.lower()
            certificates[name] = {
                "served": served(root, device, mode, calls),
                "eager": eager(public, side, mode is NumericMode.BF16, calls),
            }
    return {
        "device": device_name(choose_device(device)),
        "certify_64x5": certificates,
        "encoding": encoding(chosen, device, batch, rounds),
        "job": job(chosen, device, anchors),
    }


if __name__ == "__main__":
    run(report)
