"""A severity grid of every kind through CertifyPool: up to which severity does the winner hold?"""

import numpy as np
import pytest
import wire
from acpc.contract import GRADED, parse_grid
from acpc_client.sync.client import AcpcClient

DRAWS = 3
# Every kind, and two that go both ways.
GRIDS = [*map(wire.grid_of, GRADED), "brightness:-0.4..0.4/5", "gamma:0.5,1,1.5,3"]


@pytest.mark.parametrize("text", GRIDS)
def test_the_certified_severity_is_the_last_before_a_failure(client: AcpcClient, text: str) -> None:
    grid = parse_grid(text)
    history = wire.frames(wire.HISTORY)
    pool = np.stack([wire.blocks(wire.HORIZON, seed=seed) for seed in range(8)])
    asked = {"past_blocks": wire.blocks(wire.HISTORY - 1), "draws": DRAWS, "elite_count": 3}
    goal = wire.frames(1, seed=4)[0]
    answer = client.certify_pool("lewm", history, pool, goal, perturbations=grid, **asked)
    (certified,) = answer.certified_severities
    assert certified.kind == grid[0].kind
    assert len(answer.views) == len(grid) * DRAWS
    for name in ("top1", "elite"):
        denied = [view for view in answer.views if not getattr(view, name).certified]
        failed = [grid[view.spec_index].severity for view in denied]
        held = [s.severity for s in grid if s.severity < min(failed, default=np.inf)]
        assert getattr(certified, name) == max(held)
    unchanged = min(s.severity for s in grid)
    for view in answer.views:
        if grid[view.spec_index].severity == unchanged:
            assert view.acpc.max() == 0.0  # the very latents of the clean history
            assert view.top1.certified
