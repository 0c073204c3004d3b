"""What a GPU would need at least: operations and bytes of a job and a pool, over its data sheet.

    python benchmarks/device_floors.py [--out build/benchmarks/device_floors.json]

Counted on a CUDA device that torch pretends to have, where nothing is computed: these are floors,
not measurements. Rates are those of an H100 SXM without sparsity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient, DeviceContext
from acpc_server.models import FrozenJepa
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority
from common import run
from pretended_cuda import CUDA, on_pretended, pretended_cuda
from score_job import load_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

SHEET = {
    "flops_per_second": {"fp32": 67e12, "tf32": 495e12, "bf16": 989e12},
    "memory_bytes_per_second": 3.35e12,
    "host_link_bytes_per_second": 64e9,
}
ANCHORS, DRAWS, HISTORY, HORIZON = 100, 5, 3, 8
CANDIDATES, STEPS, VIEWS, SIDE = 64, 5, 2, 224


def counted(work: Callable[[], None]) -> dict[str, int]:
    """Operations of products and attention, and bytes copied, of one call on the device."""
    with pretended_cuda() as watch, sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as counter:
            work()
        return {
            "flops": int(counter.get_total_flops()),
            "bytes_in": sum(watch.copies_in),
            "bytes_out": sum(watch.copies_out),
        }


def floors(flops: float, weight_bytes: float, copied: float) -> dict[str, float]:
    """Seconds of arithmetic in each mode, of reading weights, and of the host's link."""
    return {
        **{mode: flops / rate for mode, rate in SHEET["flops_per_second"].items()},
        "weights_read": weight_bytes / SHEET["memory_bytes_per_second"],
        "host_link": copied / SHEET["host_link_bytes_per_second"],
    }


def report() -> dict[str, Any]:
    """Of one call of each kind, and of a job and a pool of them."""
    real = load_model("cpu")
    if not isinstance(real, FrozenJepa):
        raise TypeError("the paper's model is a FrozenJepa")
    context, mode = DeviceContext(Priority.JOB), NumericMode.FP32
    card, weights = real.card, 4 * real.card.parameter_count
    engine = DeviceClient(CUDA, Metrics())
    with (
        # Equal rows are looked for in numbers, which nothing here has.
        mock.patch("acpc_server.engine.client.share_rows", lambda rows, *_: rows),
        mock.patch("acpc_server.engine.client.equal_rows", lambda *_: None),
    ):

        def encode() -> None:
            engine.encode(on_pretended(real), torch.zeros(1, 3, SIDE, SIDE), context, mode)

        def roll() -> None:
            blocks = torch.zeros(1, HISTORY + HORIZON - 1, card.action_block_dim)
            histories = torch.zeros(1, HISTORY, card.latent_dim)
            engine.rollout(on_pretended(real), histories, blocks, context, mode)

        def pool() -> None:
            histories = torch.zeros(VIEWS, HISTORY, card.latent_dim)
            past = torch.zeros(HISTORY - 1, card.action_block_dim)
            pools = torch.zeros(1, CANDIDATES, STEPS, card.action_block_dim)
            engine.rollout_pool(on_pretended(real), histories, past, pools, context, mode)

        one = {"encode_frame": counted(encode), "rollout": counted(roll), "pool": counted(pool)}
    engine.close()
    frames = ANCHORS * (HISTORY + HORIZON + DRAWS * HISTORY)
    rollouts = ANCHORS * (1 + DRAWS + 2)
    job_flops = frames * one["encode_frame"]["flops"] + rollouts * one["rollout"]["flops"]
    frame_bytes = ANCHORS * (HISTORY + HORIZON) * SIDE * SIDE * 3  # uint8, drawn on the device
    calls = -(-frames // 52) + 1  # of 52 frames, and one for the rollouts
    pool_copies = one["pool"]["bytes_in"] + one["pool"]["bytes_out"]
    return {
        "computed": True,
        "data_sheet": {"device": "H100 SXM", **SHEET},
        "counted": one,
        "job": {"anchors": ANCHORS, "draws": DRAWS, "horizon": HORIZON, "flops": job_flops},
        "floor_seconds": {
            "job": floors(job_flops, calls * weights, frame_bytes),
            "pool": floors(one["pool"]["flops"], STEPS * weights, pool_copies),
        },
    }


if __name__ == "__main__":
    run(report)
