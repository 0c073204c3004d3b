"""Sessions for the public library's solvers, in each release at hand."""

from collections.abc import Iterator

import pytest
from acpc_client.sync.client import AcpcClient
from cem_solvers import Sessions
from client_counterparty import Counterparty
from public_library import RELEASES, public_release


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Iterator[str]:
    """The release of the public library that the test's solvers are of."""
    with public_release(request.param):
        yield request.param


@pytest.fixture
def session(client: AcpcClient, counterparty: Counterparty) -> Sessions:
    return Sessions(client, counterparty)
