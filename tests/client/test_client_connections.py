"""How many connections a client has: one, and more while many calls are under way."""

from collections import Counter

import numpy as np
import pytest
from acpc.contract import GaussianBlur
from acpc_client.calls import Method
from acpc_client.errors import ArgumentError, DeadlineExceeded, ServerAway
from acpc_client.retries import RetryPolicy
from acpc_client.sync.client import AcpcClient
from acpc_client.transport import base
from acpc_client.transport.channel import BUSY_CALLS, Connection, Connections
from client_counterparty import Counterparty, serve

MAX_CONNECTIONS = 8
BLUR = GaussianBlur(15)


def connections() -> tuple[Connections, list[object]]:
    opened: list[object] = []

    def another() -> object:
        opened.append(object())
        return opened[-1]

    return Connections(another, MAX_CONNECTIONS), opened


def test_few_calls_have_one_connection() -> None:
    given, opened = connections()
    for _ in range(BUSY_CALLS):
        given.least_busy().under_way += 1
    assert len(opened) == 1
    given.least_busy().under_way += 1
    assert len(opened) == 2


def test_many_calls_spread_evenly_over_as_many_as_there_may_be() -> None:
    given, opened = connections()
    taken: Counter[Connection] = Counter()
    for _ in range(3 * BUSY_CALLS * MAX_CONNECTIONS):
        one = given.least_busy()
        one.under_way += 1
        taken[one] += 1
    assert len(opened) == MAX_CONNECTIONS
    assert set(taken.values()) == {3 * BUSY_CALLS}


def test_calls_one_after_another_stay_on_one_connection() -> None:
    given, opened = connections()
    for _ in range(10 * BUSY_CALLS):
        one = given.least_busy()
        one.under_way += 1
        one.under_way -= 1
    assert len(opened) == 1


def test_a_call_that_has_failed_is_not_under_way() -> None:
    class Broken:
        def __init__(self, _channel: object) -> None:
            pass

        def Plan(self, *_: object, **__: object) -> None:
            raise ConnectionError

    one = Connection(object())
    with pytest.raises(ConnectionError):
        one.call(Method(Broken, "Plan", timeout=1.0))(iter(()))
    assert one.under_way == 0


def test_a_client_has_one_connection_unless_it_is_told() -> None:
    one = Connections(object)
    first = one.least_busy()
    first.under_way = 10 * BUSY_CALLS
    assert one.least_busy() is first
    with pytest.raises(ArgumentError, match="connections: found 0, wanted 1 or more"):
        AcpcClient("localhost:1", connections=0)
    with pytest.raises(ArgumentError, match="connections: found nan, wanted an integer"):
        AcpcClient("localhost:1", connections=float("nan"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("unheard", "connections"), [(0.0, 2), (1e9, 1)])
def test_a_deadline_without_a_word_for_long_leads_to_a_new_connection(
    unheard: float, connections: int, counterparty: Counterparty, target: str,
    history: np.ndarray, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(base, "UNHEARD_S", unheard)
    pool = np.zeros((3, 2, 2), np.float32)
    with AcpcClient(target) as client:
        for stalled in (True, False):
            with client.plan("lewm", history[:1], history[0], perturbations=BLUR) as session:
                if stalled:
                    counterparty.stalled.set()
                    with pytest.raises(DeadlineExceeded):
                        session.certify(pool, timeout=0.05)
                    counterparty.stalled.clear()
                else:
                    assert session.certify(pool)
    assert len(set(counterparty.peers["Plan"])) == connections


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
