"""Connections of a client: to several servers, to one that came back, after a long silence."""

import contextlib

import numpy as np
import pytest
from acpc.contract import GaussianBlur, Identity
from acpc_client.errors import DeadlineExceeded, ServerAway
from acpc_client.retries import RetryPolicy
from acpc_client.sync.client import AcpcClient
from client_counterparty import Counterparty, serve
from client_fixtures import BLOCKS, HISTORY

BLUR = GaussianBlur(15)
CALLS = 12


@pytest.mark.slow  # a connection is left once nothing has come on it for five seconds
def test_a_deadline_without_a_word_for_long_leads_to_a_new_connection(
    counterparty: Counterparty, target: str
) -> None:
    pool = np.zeros((3, 2, 2), np.float32)
    with AcpcClient(target) as client:
        with client.plan("lewm", HISTORY[:1], HISTORY[0], perturbations=BLUR) as session:
            counterparty.stalled.set()
            with pytest.raises(DeadlineExceeded):
                session.certify(pool, timeout=5.2)
            counterparty.stalled.clear()
        with client.plan("lewm", HISTORY[:1], HISTORY[0], perturbations=BLUR) as session:
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


def test_calls_go_round_the_servers_of_a_target() -> None:
    sides = [Counterparty(), Counterparty()]
    with contextlib.ExitStack() as stack:
        servers = [serve(side) for side in sides]
        for server, _ in servers:
            stack.callback(server.stop, None)
        target = "ipv4:" + ",".join(at.replace("localhost", "127.0.0.1") for _, at in servers)
        client = stack.enter_context(
            AcpcClient(target, retry=RetryPolicy(attempts=5, initial=0.05))
        )

        def ask(times: int) -> list[int]:
            before = [len(side.requests["ComparePair"]) for side in sides]
            for _ in range(times):
                client.compare_pair("a", HISTORY, BLOCKS, perturbations=Identity())
            after = [len(side.requests["ComparePair"]) for side in sides]
            return [y - x for x, y in zip(before, after, strict=True)]

        ask(CALLS)  # until both connections stand
        shares = ask(CALLS)
        assert shares == [CALLS // 2, CALLS // 2]
        servers[0][0].stop(None).wait()
        assert ask(CALLS)[1] == CALLS
