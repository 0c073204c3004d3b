"""A control loop of 50 steps: one stream that moves from frame to frame, beside one stream a step.

Both see the same frames, goal and pools, in turn; by perturbation, milliseconds a step at the
planner and the server's processor time for it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from acpc.contract import Brightness, GaussianBlur, GaussianNoise
from acpc_client import AcpcClient
from common import CHECKPOINTS, parser, processor_seconds, publish
from load import HISTORY, SIDE, WIDTH
from server_process import ServerProcess

MODEL, STEPS = "two-room-base", 50
CANDIDATES, HORIZON, ELITES = 64, 5, 8
CHANGES = {
    "noise": GaussianNoise(0.08),
    "blur": GaussianBlur(5),
    "brightness": Brightness(0.2),
}


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


def one_a_step(client: AcpcClient, episode: Episode, options: dict[str, Any]) -> list[int]:
    """Winners of an episode."""
    winners = []
    for step, pool in enumerate(episode.pools):
        with episode.session(client, step, options) as session:
            winners.append(session.certify(pool).clean_winner)
    return winners


def one_stream(client: AcpcClient, episode: Episode, options: dict[str, Any]) -> list[int]:
    """The same of one session."""
    winners = []
    with episode.session(client, 0, options) as session:
        for step, pool in enumerate(episode.pools):
            if step:
                newest = episode.frames[step + HISTORY - 1][None]
                session.move(newest, keep=HISTORY - 1, past_blocks=episode.past(step))
            winners.append(session.certify(pool).clean_winner)
    return winners


WAYS = {"stream_a_step": one_a_step, "one_stream": one_stream}


@contextmanager
def spent(server: ServerProcess, into: dict[str, list[float]]) -> Iterator[None]:
    """Adds the milliseconds of a step that its body took, and the server's processor for it."""
    before, begun = sum(processor_seconds(server.pid)), time.perf_counter()
    yield
    into["step_ms"].append(1e3 * (time.perf_counter() - begun) / STEPS)
    used = sum(processor_seconds(server.pid)) - before
    into["server_processor_ms"].append(1e3 * used / STEPS)


def measured(server: ServerProcess, change: Any, rounds: int) -> dict[str, Any]:  # noqa: ANN401
    """Both ways, medians over episodes, and how much cheaper one stream is."""
    found: dict[str, dict[str, list[float]]]
    found = {way: {"step_ms": [], "server_processor_ms": []} for way in WAYS}
    seed = time.time_ns()
    with AcpcClient(server.address) as client:
        for number in range(rounds + 1):
            for place, (name, way) in enumerate(WAYS.items()):
                # The frames of the other way would be in the server's cache of latents.
                episode = Episode(seed + 2 * number + place)
                options = {"perturbations": change, "seed": number}
                with spent(server, found[name]):
                    way(client, episode, options)
    medians = {
        way: {what: float(np.median(values[1:])) for what, values in figures.items()}
        for way, figures in found.items()
    }
    before, after = medians.values()
    return {**medians, "cheaper": {what: before[what] / after[what] for what in before}}


def main() -> None:
    """Command line entry."""
    arguments = parser(__doc__, "control_loop")
    arguments.add_argument("--rounds", type=int, default=5, help="episodes of each way")
    options = arguments.parse_args()
    report: dict[str, Any] = {"model": MODEL, "steps": STEPS}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "data").mkdir()
        with ServerProcess(CHECKPOINTS, root / "data", root / "state") as server:
            for name, change in CHANGES.items():
                report[name] = measured(server, change, options.rounds)
    publish(report, options.out)


if __name__ == "__main__":
    main()
