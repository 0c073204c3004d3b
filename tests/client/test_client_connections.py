"""How many connections a client has: one, and more while many calls are under way."""

import numpy as np
import pytest
from acpc.contract import GaussianBlur
from acpc_client.errors import DeadlineExceeded, ServerAway
from acpc_client.retries import RetryPolicy
from acpc_client.sync.client import AcpcClient
from client_counterparty import Counterparty, serve

BLUR = GaussianBlur(15)


@pytest.mark.slow  # a connection is left once nothing has come on it for five seconds
def test_a_deadline_without_a_word_for_long_leads_to_a_new_connection(
    counterparty: Counterparty, target: str, history: np.ndarray
) -> None:
    pool = np.zeros((3, 2, 2), np.float32)
    with AcpcClient(target) as client:
        with client.plan("lewm", history[:1], history[0], perturbations=BLUR) as session:
            counterparty.stalled.set()
            with pytest.raises(DeadlineExceeded):
                session.certify(pool, timeout=5.2)
            counterparty.stalled.clear()
        with client.plan("lewm", history[:1], history[0], perturbations=BLUR) as session:
            assert session.certify(pool)
    assert len(set(counterparty.peers["Plan"])) == 2


def test_a_new_client_reaches_a_server_that_an_older_one_found_away(unused_target: str) -> None:
    """Connections that channels of a process share wait before they try again."""
    once = RetryPolicy(attempts=1)
    with AcpcClient(unused_target, retry=once) as older:
        with pytest.raises(ServerAway):
            older.checkpoints.get("lewm")
        server, _ = serve(Counterparty(), address=unused_target)
        try:
            with AcpcClient(unused_target, retry=once) as newer:
                assert newer.checkpoints.get("lewm")
        finally:
            server.stop(None).wait()
