"""A control loop of 50 steps: one stream that moves from frame to frame, beside one stream a step.

Both see frames, goals and pools of the same kind, step by step in turn, so that both see the same
machine; by perturbation, milliseconds of a step at the planner and of the server's processor. A
server's cache of latents keeps what a new stream would else encode again, so a server without one
is measured too.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from acpc.contract import Brightness, GaussianBlur, GaussianNoise
from acpc_client import AcpcClient
from common import CHECKPOINTS, ROUNDS, processor_time, run, spread
from load import HISTORY, SIDE, WIDTH
from server_process import ServerProcess

MODEL, STEPS = "two-room-base", 50
CANDIDATES, HORIZON, ELITES = 64, 5, 8
CHANGES = {
    "noise": GaussianNoise(0.08),
    "blur": GaussianBlur(5),
    "brightness": Brightness(0.2),
}
Winners = Generator[int, None, None]


class Episode:
    """What a planner sees and asks in one episode, nothing of which was asked before."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.frames = rng.integers(0, 256, (HISTORY + STEPS, SIDE, SIDE, 3), dtype=np.uint8)
        self.goal = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
        self.blocks = rng.standard_normal((HISTORY + STEPS, WIDTH)).astype(np.float32)
        shape = STEPS, CANDIDATES, HORIZON, WIDTH
        self.pools = rng.standard_normal(shape).astype(np.float32)

    def past(self, step: int) -> np.ndarray:
        """Blocks that leave the earlier frames of a step's window."""
        return self.blocks[step : step + HISTORY - 1]

    def session(self, client: AcpcClient, step: int, options: dict[str, Any]) -> Any:  # noqa: ANN401
        """One about the window of a step."""
        window = self.frames[step : step + HISTORY]
        return client.plan(
            MODEL, window, self.goal, past_blocks=self.past(step), elite_count=ELITES, **options
        )


def one_a_step(client: AcpcClient, episode: Episode, options: dict[str, Any]) -> Winners:
    """The winners of an episode."""
    for step, pool in enumerate(episode.pools):
        with episode.session(client, step, options) as session:
            winner = session.certify(pool).clean_winner
        yield winner


def one_stream(client: AcpcClient, episode: Episode, options: dict[str, Any]) -> Winners:
    """The same of one session."""
    with episode.session(client, 0, options) as session:
        for step, pool in enumerate(episode.pools):
            if step:
                newest = episode.frames[step + HISTORY - 1][None]
                session.move(newest, keep=HISTORY - 1, past_blocks=episode.past(step))
            yield session.certify(pool).clean_winner


WAYS = {"stream_a_step": one_a_step, "one_stream": one_stream}


@contextmanager
def spent(server: ServerProcess, into: dict[str, list[float]]) -> Iterator[None]:
    """Adds the milliseconds that its body took, and the server's processor for it."""
    before, begun = processor_time(server.pid), time.perf_counter()
    yield
    into["step_ms"].append(1e3 * (time.perf_counter() - begun))
    into["server_processor_ms"].append(1e3 * (processor_time(server.pid) - before))


def measured(server: ServerProcess, change: Any, rounds: int) -> dict[str, Any]:  # noqa: ANN401
    """Both ways, step by step in turn; medians of steps, and by episode how much cheaper one is."""
    found: dict[str, dict[str, list[float]]]
    found = {way: {"step_ms": [], "server_processor_ms": []} for way in WAYS}
    seed = time.time_ns()
    with AcpcClient(server.address) as client:
        for number in range(rounds + 1):
            options = {"perturbations": change, "seed": number}
            # The frames of the other way would be in the server's cache of latents.
            asked = {
                name: way(client, Episode(seed + 2 * number + place), options)
                for place, (name, way) in enumerate(WAYS.items())
            }
            for step in range(STEPS):
                for name in [*asked][:: 1 if step % 2 else -1]:  # each as often after the other
                    with spent(server, found[name]):
                        next(asked[name])
            for episode in asked.values():
                episode.close()  # and so the stream
    medians = {
        way: {what: float(np.median(values[STEPS:])) for what, values in figures.items()}
        for way, figures in found.items()
    }

    def episodes(way: str, what: str) -> np.ndarray:
        return np.median(np.reshape(found[way][what][STEPS:], (rounds, STEPS)), axis=1)

    cheaper = {
        what: spread((episodes("stream_a_step", what) / episodes("one_stream", what)).tolist())
        for what in ("step_ms", "server_processor_ms")
    }
    return {**medians, "cheaper": cheaper}


def report(rounds: int = ROUNDS) -> dict[str, Any]:
    """So many episodes of each way, with a cache of latents and without."""
    found: dict[str, Any] = {"model": MODEL, "steps": STEPS}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "data").mkdir()
        started = partial(ServerProcess, CHECKPOINTS, root / "data")
        with (
            started(root / "cached") as server,
            started(root / "uncached", latent_cache_mib=0) as uncached,
        ):
            for name, change in CHANGES.items():
                found[name] = measured(server, change, rounds)
                found[name]["uncached"] = measured(uncached, change, rounds)
    return found


if __name__ == "__main__":
    run(report)
