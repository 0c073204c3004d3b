"""What decides how fast two threads compute: how they wait, how weights lie, and who else computes.

    python benchmarks/threads.py [--rounds 5] [--out FILE]

Eight frames encoded and 60 histories rolled out by a network of the paper's size, as in a job: with
packed and with plain products, while threads that wait spin and while they sleep, in turns, on this
machine as it is and beside one busy process. Rows are cut in halves where there are two threads;
"whole" shares every operation.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import common
import torch
from acpc_server.engine.host import HalfCalls, Waits
from acpc_server.models import load_checkpoint, rollout
from processes import running
from public_checkpoint import public_config, write_checkpoint

CALLS = 2  # of a turn
FRAMES, ROWS, STEPS = 8, 60, 8
BUSY = [sys.executable, "-c", "while True: pass"]


def works(folder: Path) -> dict[str, dict[str, Callable[[], object]]]:
    """Both computations, by name and by how the weights of their products lie."""
    write_checkpoint(folder / "paper", public_config("paper"))
    plain = load_checkpoint(folder, "paper", device=torch.device("cpu"))
    card = plain.card
    frames = torch.randn(FRAMES, 3, card.image_size, card.image_size)
    latents = torch.randn(ROWS, card.history, card.latent_dim)
    blocks = torch.randn(ROWS, card.history + STEPS - 1, card.action_block_dim)
    packed, halves = plain.prepared(torch.float32), HalfCalls()
    ways: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]]
    found: dict[str, dict[str, Callable[[], object]]] = {"encode": {}, "rollout": {}}
    for kind, model in (("packed", packed), ("plain", plain)):
        ways = {
            "encode": (model.encode, (frames,)),
            "rollout": (partial(rollout, model), (latents, blocks)),
        }
        for name, (work, inputs) in ways.items():
            found[name][kind] = partial(halves.compute, work, *inputs)
            found[name].setdefault("whole", partial(work, *inputs))
    return found


def turn(waiting: Waits, work: Callable[[], object], calls: int, *, spin: bool) -> common.Spent:
    """What a call takes while threads that wait spin, or sleep."""
    if waiting.spins is not spin:
        waiting.choose(spin=spin)
        time.sleep(0.05)  # for the idle team to come or go
    took = common.spent(lambda: [work() for _ in range(calls)])
    return common.Spent(took.processor / calls, took.wall / calls)


def compared(
    waiting: Waits, kinds: dict[str, Callable[[], object]], calls: int, rounds: int
) -> dict[str, Any]:
    """Seconds of every way to compute one thing, in turns."""
    ways = {
        f"{kind} {'spin' if spin else 'sleep'}": partial(turn, waiting, work, calls, spin=spin)
        for kind, work in kinds.items()
        for spin in (True, False)
    }
    common.alternated(ways, 1)  # warm
    found = common.alternated(ways, rounds)
    return {
        "packed_ratio": common.ratio(found["packed sleep"], found["plain sleep"]),
        "spin_ratio": common.ratio(found["packed spin"], found["packed sleep"]),
        **{
            way: {
                "wall": common.spread([each.wall for each in turns]),
                "processor": common.spread([each.processor for each in turns]),
            }
            for way, turns in found.items()
        },
    }


@torch.inference_mode()
def measure(folder: Path, rounds: int) -> dict[str, Any]:
    """Every case, alone and beside a busy process."""
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    waiting, computed = Waits(threads), works(folder)
    report: dict[str, Any] = {name: {} for name in computed}
    for where, busy in (("alone", nullcontext()), ("beside", running(BUSY))):
        with busy:
            for name, kinds in computed.items():
                report[name][where] = compared(waiting, kinds, CALLS, rounds)
    waiting.close()
    return report


def report(rounds: int = common.ROUNDS) -> dict[str, Any]:
    """Every case, in a thread as the device's is."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        # As the device does: not in the main thread, in which imports may have made a team.
        own = threading.Thread(
            target=lambda: found.append(measure(Path(folder), rounds)), name="device"
        )
        own.start()
        own.join()
    return found[0]


if __name__ == "__main__":
    common.run(report)
