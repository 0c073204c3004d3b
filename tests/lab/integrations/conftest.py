"""Sessions for the public library's solvers, in each release at hand."""

from collections.abc import Iterator

import numpy as np
import pytest
from acpc.contract import GaussianNoise
from acpc_client.sync.client import AcpcClient
from acpc_client.sync.session import PlanSession
from cem_solvers import Opener
from public_library import RELEASES, public_release


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Iterator[str]:
    """The release of the public library that the test's solvers are of."""
    with public_release(request.param):
        yield request.param


@pytest.fixture
def client(target: str) -> Iterator[AcpcClient]:
    with AcpcClient(target) as opened:
        yield opened


@pytest.fixture
def session(client: AcpcClient, history: np.ndarray) -> Opener:
    """Sessions whose seed tells the environment."""

    def opened(env: int, **options: int) -> PlanSession:
        goal, options = np.zeros(6, np.float32), {"elite_count": 2, **options}
        return client.plan(
            "a", history[:1], goal, perturbations=GaussianNoise(0.08), seed=env, **options
        )

    return opened
