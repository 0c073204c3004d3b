"""An eight-iteration CEM step through Plan, against the public way, at the paper's size.

    python benchmarks/planning.py [--iterations 8] [--out build/benchmarks/planning.json]

The public way scores each branch on its own at every iteration, as the public ``get_cost`` does:
encode the history and the goal, embed the actions, predict window by window with all output
tokens; once for the clean history and once for its perturbed view. Plan sends history and goal
once and then only pools. Both run on the same weights and pools, the server over loopback, in
float32 and in bfloat16, which the caller may choose; the public way always in float32.

``environments`` are those of one solver with ``CemCertificates`` on the demo's model: how long an
iteration of so many is held up, asked about at once and in turn, and what it is to one alone.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from acpc.contract import NumericMode
from acpc_client import AcpcClient, GaussianNoise, PlanSession, ViewOptions
from acpc_lab.integrations import CemCertificates
from acpc_server.numerics.pixels import to_model_input
from common import CHECKPOINTS, ROUNDS, Spent, alternated, ratio, run, spent, spread
from ordinary import OrdinaryModel
from public_checkpoint import public_config, write_checkpoint
from server_process import ServerProcess
from torch import Tensor
from world import render

WAYS = {"eager": NumericMode.FP32, "bf16": NumericMode.BF16}
ENVIRONMENTS = (1, 2, 4, 8)
HISTORY, HORIZON, CANDIDATES, ELITES, WIDTH, SIDE = 3, 5, 64, 8, 10, 224


def public_costs(
    model: OrdinaryModel, frames: list[Tensor], past: Tensor, goal: Tensor, pool: Tensor
) -> np.ndarray:
    """Costs of a pool from each history, everything computed from the frames, one by one."""
    blocks = torch.cat([past.expand(len(pool), -1, -1), pool], dim=1)
    costs = []
    for history in frames:
        target = model.encode(goal[None])[0]
        ends = model.roll(model.encode(history)[None], blocks)[0, :, -1]
        costs.append((ends - target).square().sum(-1).float().cpu().numpy())
    return np.array(costs)


def plan_server(root: Path) -> ServerProcess:
    """Return a server on all cores."""
    return ServerProcess(
        root / "checkpoints",
        root / "data",
        root / "state",
        environment={"OMP_NUM_THREADS": str(torch.get_num_threads())},
    )


def report(iterations: int = 8, rounds: int = ROUNDS) -> dict[str, Any]:
    """So many steps of each way, in turn."""
    rng = np.random.default_rng(0)
    history, view = rng.integers(0, 256, (2, HISTORY, SIDE, SIDE, 3), dtype=np.uint8)
    goal = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    past = rng.standard_normal((HISTORY - 1, WIDTH)).astype(np.float32)
    shape = (iterations, CANDIDATES, HORIZON, WIDTH)
    pools = rng.standard_normal(shape).astype(np.float32)
    config = public_config("paper")

    @torch.inference_mode()
    def public_step() -> np.ndarray:
        frames = [to_model_input(torch.from_numpy(x), SIDE) for x in (history, view)]
        target = to_model_input(torch.from_numpy(goal[None]), SIDE)[0]
        given = public, frames, torch.from_numpy(past), target
        return np.array([public_costs(*given, torch.from_numpy(pool)) for pool in pools])

    found: dict[str, Any] = {
        "iterations": iterations,
        "candidates": CANDIDATES,
        "horizon": HORIZON,
        "threads": torch.get_num_threads(),
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "data").mkdir()
        write_checkpoint(root / "checkpoints" / "paper", config)
        public = OrdinaryModel(root / "checkpoints" / "paper")
        for name, mode in WAYS.items():
            with plan_server(root) as server:
                client = AcpcClient(server.address)

                def plan_step(client: AcpcClient = client, mode: NumericMode = mode) -> np.ndarray:
                    history[0, 0, 0, 0] += 1  # whose latents are not kept
                    with client.plan(
                        "paper",
                        history,
                        goal,
                        past_blocks=past,
                        views=view[None],
                        elite_count=ELITES,
                        numeric_mode=mode,
                    ) as session:
                        answers = [session.certify(pool) for pool in pools]
                    return np.array([[a.clean_costs, a.views[0].perturbed_costs] for a in answers])

                client.checkpoints.load("paper")
                served, direct = plan_step(), public_step()  # and warm
                ways = {
                    "plan": lambda step=plan_step, pid=server.pid: spent(step, pid),
                    "public": lambda: spent(public_step),
                }
                took = alternated(ways, rounds)
            found[name] = {
                **{f"{way}_seconds": [turn.wall for turn in turns] for way, turns in took.items()},
                "ratio": ratio(took["public"], took["plan"]),
                "largest_relative_cost_difference": float(np.max(np.abs(served - direct) / direct)),
            }
        found["environments"] = environments(root, iterations, rounds)
    return found


def environments(root: Path, iterations: int, rounds: int) -> dict[str, Any]:
    """Seconds of an iteration, of sessions that are open, by way and number of environments."""
    rng = np.random.default_rng(0)
    frames = render(rng.uniform(0.1, 0.9, (2 * max(ENVIRONMENTS), 2)))
    pools = rng.standard_normal((max(ENVIRONMENTS), CANDIDATES, HORIZON, WIDTH), dtype=np.float32)
    costs = rng.random(pools.shape[:2], dtype=np.float32)
    best = np.argsort(costs)[:, :ELITES]
    with (
        ServerProcess(CHECKPOINTS, root / "data", root / "demo") as server,
        AcpcClient(server.address) as client,
    ):

        def turn(batches: list[slice]) -> Spent:
            hooks = [CemCertificates(partial(opened, batch.start)) for batch in batches]

            def loop(steps: int) -> None:
                for step in range(steps):
                    for hook, of in zip(hooks, batches, strict=True):
                        hook(step=step, candidates=pools[of], costs=costs[of], topk_inds=best[of])

            for hook in hooks:
                hook.start_batch()
            loop(1)
            took = spent(partial(loop, iterations), server.pid)
            for hook in hooks:
                hook.end_solve()
            return Spent(took.processor / iterations, took.wall / iterations)

        def opened(first: int, env: int) -> PlanSession:
            view: ViewOptions = {"perturbations": GaussianNoise(0.02), "draws": 5}
            start, goal = frames[first + env :: max(ENVIRONMENTS)]
            return client.plan("two-room-base", start[None], goal, elite_count=ELITES, **view)

        ways = {}
        for count in ENVIRONMENTS:
            each = [slice(env, env + 1) for env in range(count)]
            ways[f"{count} at once"] = partial(turn, [slice(0, count)])
            ways[f"{count} in turn"] = partial(turn, each)
        alternated(ways, 1)  # warm
        took = alternated(ways, rounds)
    alone = took["1 in turn"]
    return {
        name: {
            "seconds": spread([one.wall for one in turns]),
            "processor_seconds": spread([one.processor for one in turns]),
            "to one alone": ratio(turns, alone),
        }
        for name, turns in took.items()
    }


if __name__ == "__main__":
    run(report)
