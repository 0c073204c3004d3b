"""What drawing costs, how good the normals are, and what a drawn view costs the host of a device.

    python benchmarks/draws.py [--normals 20_000_000] [--quality 100_000_000]

Writes build/benchmarks/draws.json: nanoseconds a normal and a pixel of a noisy view on one thread,
for this release's draws and those of earlier jobs; moments, tails and the largest distance from the
normal distribution function over many draws; and the copies that make a request's frames on a
pretended device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from acpc.contract import (
    ColorJitter,
    DefocusBlur,
    GaussianBlur,
    GaussianNoise,
    Jpeg,
    MotionBlur,
    NumericMode,
    PerturbationSet,
)
from acpc_server.encoding.frame_sources import FrameSources
from acpc_server.models import sample_model
from acpc_server.numerics import normals
from acpc_server.perturb import DrawKey, perturb_histories
from acpc_server.perturb.draws import Draws
from common import run
from pretended_cuda import pretended_cuda

CPU = torch.device("cpu")
BINS, CHUNK, TAILS = 4096, 10_000_000, (3.0, 4.0, 5.0, 5.5)
HISTORY, SIDE, VIEWS = 3, 224, 5
COSTS = (
    *(GaussianNoise(0.08), ColorJitter(0.5), Jpeg(20), GaussianBlur(15), MotionBlur(15)),
    *(DefocusBlur(4), DefocusBlur(16), DefocusBlur(32)),
)


def nanoseconds(work: Callable[[], object], values: int) -> float:
    """Of processor time a value, the best of five rounds."""
    found = []
    for _ in range(5):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return 1e9 * min(found) / values


def costs(count: int) -> dict[str, Any]:
    """Normals alone, and whole noisy views of a history of the published size."""
    frames = torch.rand(HISTORY, 3, SIDE, SIDE)
    keys = [DrawKey(0, 0, draw) for draw in range(VIEWS)]
    report: dict[str, Any] = {
        "ns_a_normal": nanoseconds(
            lambda: Draws("gaussian_noise", keys[:1], CPU).normals([count]), count
        ),
        "ns_a_view_value": nanoseconds(
            lambda: perturb_histories([frames] * VIEWS, GaussianNoise(0.08), keys),
            VIEWS * frames.numel(),
        ),
    }
    key = keys[0]
    report["ms_a_history"] = {
        str(kind): nanoseconds(lambda kind=kind: perturb_histories([frames], kind, [key]), 1) / 1e6
        for kind in COSTS
    }
    return report


def how_good(count: int) -> dict[str, Any]:
    """Of ``count`` normals, many keys; distances in standard errors where they have one."""
    exact = NormalDist()
    edges = np.array([exact.inv_cdf(k / BINS) for k in range(1, BINS)])
    inside, sums, beyond = np.zeros(BINS), np.zeros(4), np.zeros(len(TAILS))
    largest = 0.0
    for start in range(0, count, CHUNK):
        draws = Draws("gaussian_noise", [DrawKey(7, 0, start)], CPU)
        z = draws.normals([min(CHUNK, count - start)]).numpy().astype(np.float64)
        inside += np.histogram(z, np.concatenate([[-np.inf], edges, [np.inf]]))[0]
        sums += [np.sum(z**power) for power in (1, 2, 3, 4)]
        beyond += [np.count_nonzero(np.abs(z) > tail) for tail in TAILS]
        largest = max(largest, float(np.abs(z).max()))
    spread = {1: 1.0, 2: 2.0, 3: 15.0, 4: 96.0}  # variances of z, z^2, z^3, z^4
    wanted = {1: 0.0, 2: 1.0, 3: 0.0, 4: 3.0}
    apart = np.cumsum(inside)[:-1] / count - np.arange(1, BINS) / BINS
    expected = np.array([2 * exact.cdf(-tail) * count for tail in TAILS])
    return {
        "draws": count,
        "moments_in_standard_errors": {
            str(n): (sums[n - 1] / count - wanted[n]) / (spread[n] / count) ** 0.5 for n in spread
        },
        # Above 1.63 once in a hundred, were the bins infinitely fine.
        "kolmogorov_sqrt_n_d": float(np.abs(apart).max() * count**0.5),
        "tails": {
            str(tail): {"found": int(found), "expected": float(wants)}
            for tail, found, wants in zip(TAILS, beyond, expected, strict=True)
        },
        "largest": largest,
    }


def copies() -> dict[str, Any]:
    """What makes the input of one history and its noisy views, on a pretended device."""
    device, card = torch.device("cuda", 0), sample_model(CPU).card
    history = np.zeros((HISTORY, card.image_size, card.image_size, 3), np.uint8)
    plan = PerturbationSet((GaussianNoise(sigma=0.08),), VIEWS, 1, 2)
    with pretended_cuda() as watch:
        # The table of the normals is there: a process sends it once.
        table = torch.empty(2, 2**15 + 1, device=device).unbind()
        normals._table_on = lambda _: table  # type: ignore[assignment]
        made = FrameSources(card, NumericMode.FP32, device)
        views = [view for view in made.views(history, plan) if view is not None]
        made.make([*made.frames(history), *views])
    return {
        "views": VIEWS,
        "history_bytes": history.nbytes,
        "copies_in_bytes": watch.copies_in,
        "copies_out_bytes": watch.copies_out,
        "operations": sum(watch.operations.values()),
    }


def report(normals: int = 20_000_000, quality: int = 100_000_000) -> dict[str, Any]:
    """So many normals timed at once, and so many looked at."""
    torch.set_num_threads(1)
    return {**costs(normals), "quality": how_good(quality), "device": copies()}


if __name__ == "__main__":
    run(report)
