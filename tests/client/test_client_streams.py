"""Streams and connections: order, failures in place, several servers, one that came back."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from acpc.contract import GaussianBlur, GaussianNoise, Identity
from acpc_client import Pair
from acpc_client.errors import (
    DeadlineExceeded,
    InvalidArgument,
    ResourceExhausted,
    ServerAway,
)
from acpc_client.retries import RetryPolicy
from acpc_client.sync.client import AcpcClient
from client_counterparty import Counterparty, serve
from client_fixtures import BLOCKS, HISTORY
from client_messages import retry_info, status


@pytest.fixture
def pair() -> Any:
    def make(pair_id: str, weights: tuple[float, ...] = ()) -> Pair:
        return Pair(HISTORY, BLOCKS, GaussianNoise(0.08), weights=weights, pair_id=pair_id)

    return make


def test_outcomes_come_in_order_and_a_refused_pair_does_not_end_the_stream(
    side: Any, pair: Any
) -> None:
    pairs = [pair("0"), pair("1", (2.0,)), pair("2")]
    outcomes = side.collect(lambda client: client.compare_pairs("a", pairs))
    assert [outcome.pair_id for outcome in outcomes] == ["0", "1", "2"]
    assert [outcome.error is None for outcome in outcomes] == [True, False, True]
    assert outcomes[0].unwrap().results[0].acpc == 1.5
    with pytest.raises(InvalidArgument, match="sum to 2") as caught:
        outcomes[1].unwrap()
    assert caught.value.violations[0].field == "weights"


def test_what_the_callers_pairs_raise_surfaces_after_the_answers_before_it(
    side: Any, pair: Any
) -> None:
    def pairs() -> Iterator[Pair]:
        yield pair("0")
        raise KeyError("the caller's own")

    seen: list[str] = []

    def note(client: Any) -> Any:
        stream = client.compare_pairs("a", pairs())
        if hasattr(stream, "__anext__"):
            return _noting(stream, seen)
        return (seen.append(outcome.pair_id) for outcome in stream)

    with pytest.raises(KeyError, match="the caller's own"):
        side.collect(note)
    assert seen == ["0"]


async def _noting(stream: AsyncIterator[Any], seen: list[str]) -> AsyncIterator[None]:
    async for outcome in stream:
        seen.append(outcome.pair_id)
        yield


@pytest.mark.parametrize("width", [4, 256])
def test_what_a_server_says_survives_a_write_to_a_stream_it_has_ended(
    side: Any, pair: Any, width: int
) -> None:
    busy = status(grpc.StatusCode.RESOURCE_EXHAUSTED, "all sessions are taken", retry_info(7))
    frames = np.zeros((1, width, width, 3), np.uint8)
    shift = GaussianNoise(0.08)
    plan: dict[str, Any] = {"history": frames, "goal": frames[0], "perturbations": shift}
    alone = {"retry": RetryPolicy(attempts=1)}
    for _ in range(15):
        side.server.refusals["ComparePairs"].append(busy)
        pairs = [Pair(frames, BLOCKS, shift)] * 3
        with pytest.raises(ResourceExhausted, match="sessions are taken") as refused:
            side.collect(lambda client, pairs=pairs: client.compare_pairs("a", pairs), **alone)
        assert refused.value.retry_after == 7
        side.server.refusals["PlanUnread"].append(busy)
        with pytest.raises(ResourceExhausted, match="sessions are taken") as refused:
            side.converse({"checkpoint": "a", **plan}, **alone)
        assert refused.value.retry_after == 7


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
        client = stack.enter_context(AcpcClient(target))

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
