"""A pool that a device captures as one computation, of a checkpoint with proprioception."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from acpc.contract import PoolCertificate
from acpc_server.engine import CheckpointCache, DeviceClient
from acpc_server.interactive import Planner
from acpc_server.models.folder import CheckpointLimits
from acpc_server.observe import Metrics
from graphed import Graphed
from planning_world import CPU, WIDTH, certify_pool, context, moment, pool
from public_prejepa import TINY, public_prejepa, write_prejepa


def test_latents_have_the_coordinates_of_proprioception(tmp_path: Path) -> None:
    """Which the encoder leaves zero."""
    sizes = replace(TINY, slots={"proprio": (4, 10), "action": (WIDTH, 10)})
    write_prejepa(tmp_path / "dino", sizes, public_prejepa(sizes))
    engine, limits = DeviceClient(CPU, Metrics()), CheckpointLimits()
    cache = CheckpointCache(tmp_path, CPU, Metrics(), limits=limits, budget_bytes=2**30)
    planner = Planner(engine, max_frames=100, max_predictions=10_000)
    seen = np.random.default_rng(0).standard_normal((3, 4), np.float32)
    asked = moment(length=2, proprio=seen[:2], goal_proprio=seen[2])

    def answer() -> PoolCertificate:
        return certify_pool(planner.prepare(cache.get("dino"), asked), pool(), context())

    wanted = answer()
    engine.owner.graphs = Graphed().graphs
    np.testing.assert_allclose(answer().clean_costs, wanted.clean_costs, rtol=1e-4)
