"""Planning sessions and paired plans: what travels once, what ends a session, what does not."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
from acpc.contract import GaussianNoise
from acpc_client.aio.client import AsyncAcpcClient
from acpc_client.errors import (
    AcpcError,
    ArgumentError,
    Cancelled,
    ClientClosed,
    DeadlineExceeded,
    InvalidArgument,
    MalformedAnswer,
    SessionClosed,
    Unavailable,
)
from acpc_client.sync.client import AcpcClient
from client_counterparty import Counterparty
from client_fixtures import BLOCKS, HISTORY
from client_messages import status

POOL = np.ones((5, 3, 2), np.float32)
BROKEN = status(grpc.StatusCode.UNAVAILABLE, "connection lost")


SCENE: dict[str, Any] = {
    "checkpoint": "a", "history": HISTORY, "goal": np.zeros(6, np.float32),
    "perturbations": GaussianNoise(0.08), "elite_count": 2,
}  # fmt: skip


def certify(session: Any) -> Any:
    return session.certify(POOL)


def converse(side: Any, *steps: Callable[[Any], Any], **changed: Any) -> Any:
    """What the steps of a session return; keys change its plan."""
    return side.converse({**SCENE, **changed}, *steps)


def test_history_and_goal_travel_once_and_pools_are_numbered(side: Any) -> None:
    plan = {"past_blocks": BLOCKS[:2], "draws": 3, "seed": 9, "anchor": 7, "request_id": "mine"}
    first, second = converse(
        side, certify, lambda session: session.certify(POOL[:4]), **plan, endpoint_tolerance=1e-6
    )
    (start,) = (message.start for message in side.server.requests["Plan"])
    assert start.request_id == "mine"
    assert start.history.data == SCENE["history"].tobytes()
    assert start.goal.WhichOneof("goal") == "latent"
    assert list(start.past_blocks.shape) == [2, 2]
    assert (start.elite_count, start.endpoint_tolerance) == (2, 1e-6)
    sent = start.perturbations
    assert (sent.draws, sent.seed, sent.anchor) == (3, 9, 7)
    pools = [message.pool for message in side.server.requests["PlanPool"]]
    assert [pool.iteration for pool in pools] == [0, 1]
    assert pools[0].candidates.data == POOL.tobytes()
    assert first.clean_costs.shape == (5,)
    assert second.clean_costs.shape == (4,)
    assert first.views[0].top1.certified
    assert first.request_id == "mine"


def test_what_cannot_be_sent_is_refused_and_the_session_goes_on(side: Any) -> None:
    refused, late, answer = converse(
        side,
        lambda session: session.certify(np.ones((5, 3, 2), int)),
        lambda session: session.certify(POOL, timeout=-1),
        certify,
    )
    assert isinstance(refused, ArgumentError)
    assert refused.field == "candidates.dtype"
    assert isinstance(late, ArgumentError)
    assert late.field == "timeout"
    assert answer.views[0].top1.certified
    assert [message.pool.iteration for message in side.server.requests["PlanPool"]] == [0]


def test_what_the_server_refuses_ends_the_session_and_says_why(side: Any) -> None:
    bad = status(grpc.StatusCode.INVALID_ARGUMENT, "candidates: width 2, wanted 10")
    side.server.refusals["PlanPool"].append(bad)
    refused, after = converse(side, certify, certify, request_id="mine")
    assert isinstance(refused, InvalidArgument)
    assert refused.request_id == "mine"
    assert isinstance(after, SessionClosed)
    assert "wanted 10" in str(after)
    assert len(side.server.requests["PlanPool"]) == 1


def test_an_answer_to_another_pool_is_never_taken(side: Any) -> None:
    side.server.iteration_error = 1
    wrong, after = converse(side, certify, certify)
    assert isinstance(wrong, MalformedAnswer)
    assert "iteration 1, wanted 0" in str(wrong)
    assert isinstance(after, SessionClosed)


def test_opening_is_tried_again_but_a_broken_session_is_not(side: Any) -> None:
    side.server.refusals["Plan"].extend([BROKEN, BROKEN])
    side.server.refusals["PlanPool"].append(BROKEN)
    (broken,) = converse(side, certify)
    assert isinstance(broken, Unavailable)
    assert "open another" in broken.message
    ids = {message.start.request_id for message in side.server.requests["Plan"]}
    assert (len(side.server.requests["Plan"]), len(ids)) == (3, 1)


def test_an_answer_that_does_not_come_is_overdue(side: Any) -> None:
    side.server.stalled.set()
    overdue, after = converse(
        side, lambda session: session.certify(POOL, timeout=0.2), certify, message_timeout=40
    )
    assert isinstance(overdue, DeadlineExceeded)
    assert "no answer within 0.2 s" in str(overdue)
    assert isinstance(after, SessionClosed)


def late_answer(side: Any, **options: Any) -> AcpcError:
    """The error of a pool whose answer is overdue, or of the start's on a busy machine."""
    try:
        (overdue,) = side.converse(SCENE, certify, **options)
    except DeadlineExceeded as error:
        overdue = error
    assert isinstance(overdue, AcpcError)
    return overdue


def test_the_clients_timeout_is_each_answers_and_not_the_sessions(side: Any) -> None:
    side.converse(SCENE, timeout=90)
    (left,) = side.server.deadlines["Plan"]
    assert left is not None
    assert 500 < left < 620
    side.server.stalled.set()
    assert "no answer within 0.2 s" in str(late_answer(side, timeout=0.2))


def test_a_session_is_entered_before_it_is_asked_and_only_once(target: str) -> None:
    with AcpcClient(target) as client:
        session = client.plan(**SCENE)
        with pytest.raises(SessionClosed, match=r"with client\.plan"):
            session.certify(POOL)
        with pytest.raises(SessionClosed, match="not entered"):
            _ = session.receipt
        with session:
            session.certify(POOL)
        with pytest.raises(SessionClosed, match="it was closed"):
            session.certify(POOL)
        with pytest.raises(SessionClosed, match="once"), session:
            pass
    with pytest.raises(ClientClosed), client.plan(**SCENE):
        pass


def test_threads_take_turns(target: str, counterparty: Counterparty) -> None:
    answers: dict[int, int] = {}
    with AcpcClient(target) as client, client.plan(**SCENE) as session:

        def ask(count: int) -> None:
            pool = np.ones((count, 3, 2), np.float32)
            answers[count] = len(session.certify(pool).clean_costs)

        threads = [threading.Thread(target=ask, args=(count,)) for count in range(3, 11)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {count: count for count in range(3, 11)}
    numbers = [message.pool.iteration for message in counterparty.requests["PlanPool"]]
    assert numbers == list(range(8))


def test_another_thread_can_close_a_session_that_waits(
    target: str, counterparty: Counterparty
) -> None:
    counterparty.stalled.set()
    with AcpcClient(target) as client, client.plan(**SCENE) as session:
        closer = threading.Timer(0.2, session.close)
        closer.start()
        with pytest.raises(Cancelled):
            session.certify(POOL)
        closer.join()
        with pytest.raises(SessionClosed, match="it was closed"):
            session.certify(POOL)


def test_a_cancelled_task_ends_the_session(target: str, counterparty: Counterparty) -> None:
    async def leave() -> None:
        async with AsyncAcpcClient(target) as client, client.plan(**SCENE) as session:
            counterparty.stalled.set()
            asking = asyncio.create_task(session.certify(POOL))
            await asyncio.sleep(0.1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            with pytest.raises(SessionClosed):
                await session.certify(POOL)

    asyncio.run(leave())


@pytest.mark.parametrize("name", ["candidates", "past_blocks"])
def test_actions_that_were_not_normalised_are_warned_of(name: str, target: str) -> None:
    asked = {**SCENE, "candidates": POOL, "past_blocks": np.zeros((2, 2), np.float32)}
    with AcpcClient(target) as client:
        with pytest.warns(UserWarning, match=f"{name} reach 412: .*action_scale"):
            client.certify_pool(
                **{**asked, name: asked[name] + np.float32(412) - asked[name].max()}
            )
        client.certify_pool(**asked)
