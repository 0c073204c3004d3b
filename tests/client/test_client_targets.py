"""A target that names several servers: calls go round them, and past one that is away."""

import contextlib

import numpy as np
from acpc.contract import Identity
from acpc_client.retries import RetryPolicy
from acpc_client.sync.client import AcpcClient
from client_counterparty import Counterparty, serve

CALLS = 12


def test_calls_go_round_the_servers_of_a_target(history: np.ndarray, blocks: np.ndarray) -> None:
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
                client.compare_pair("a", history, blocks, perturbations=Identity())
            after = [len(side.requests["ComparePair"]) for side in sides]
            return [y - x for x, y in zip(before, after, strict=True)]

        ask(CALLS)  # until both connections stand
        shares = ask(CALLS)
        assert shares == [CALLS // 2, CALLS // 2]
        servers[0][0].stop(None).wait()
        assert ask(CALLS)[1] == CALLS
