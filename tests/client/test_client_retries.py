"""What is tried again, for how long, and what is not."""

import math
import uuid
from typing import Any

import grpc
import numpy as np
import pytest
from acpc.contract import Identity
from acpc_client.errors import (
    Aborted,
    AcpcError,
    ArgumentError,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    ResourceExhausted,
    Unavailable,
)
from acpc_client.retries import RetryPolicy
from client_counterparty import Counterparty
from client_messages import retry_info, status

UNAVAILABLE = status(grpc.StatusCode.UNAVAILABLE, "draining")
BUSY = status(grpc.StatusCode.RESOURCE_EXHAUSTED, "queue is full", retry_info(0.01))
OFFSET = FailedPrecondition("goes on elsewhere", reason="UPLOAD_OFFSET")
FULL = status(grpc.StatusCode.RESOURCE_EXHAUSTED, "over the limit")


@pytest.mark.parametrize("refusal", [UNAVAILABLE, BUSY], ids=["unavailable", "busy"])
def test_two_failures_are_survived_under_one_request_id(
    refusal: Any, side: Any, counterparty: Counterparty, history: np.ndarray, blocks: np.ndarray
) -> None:
    counterparty.refusals["ComparePair"].extend([refusal] * 2)
    answer = side.ask(
        lambda client: client.compare_pair("a", history, blocks, perturbations=Identity())
    )
    sent = counterparty.requests["ComparePair"]
    assert len(sent) == 3
    assert sent[0] == sent[1] == sent[2]
    assert answer.request_id == sent[0].request_id
    assert uuid.UUID(answer.request_id).version == 4


@pytest.mark.parametrize(
    ("refusal", "kind", "sent", "words"),
    [
        (UNAVAILABLE, Unavailable, 3, None),
        (FULL, ResourceExhausted, 1, None),
        (status(grpc.StatusCode.INTERNAL, "bug"), Internal, 1, "bug"),
        (status(grpc.StatusCode.DEADLINE_EXCEEDED, "late"), DeadlineExceeded, 1, "ACPC_TIMEOUT"),
    ],
    ids=["unavailable", "full", "internal", "late"],
)
def test_attempts_end(
    refusal: Any,
    kind: type[AcpcError],
    sent: int,
    words: str | None,
    side: Any,
    counterparty: Counterparty,
) -> None:
    counterparty.refusals["GetCheckpoint"].extend([refusal] * 5)
    with pytest.raises(kind, match=words):
        side.ask(lambda client: client.checkpoints.get("a"))
    assert len(counterparty.requests["GetCheckpoint"]) == sent


def test_a_delete_is_sent_once(side: Any, counterparty: Counterparty) -> None:
    counterparty.refusals["DeleteOperation"].append(UNAVAILABLE)
    with pytest.raises(Unavailable):
        side.ask(lambda client: client.operations.delete("operations/1"))
    assert len(counterparty.requests["DeleteOperation"]) == 1


def test_a_wait_beyond_the_deadline_is_not_begun(side: Any, counterparty: Counterparty) -> None:
    far = status(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_info(3600))
    counterparty.refusals["GetCheckpoint"].append(far)
    with pytest.raises(ResourceExhausted) as caught:
        side.ask(lambda client: client.checkpoints.get("a", timeout=1000))
    assert caught.value.retry_after == 3600
    assert len(counterparty.requests["GetCheckpoint"]) == 1


def test_one_deadline_covers_all_attempts(side: Any, counterparty: Counterparty) -> None:
    busy = status(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_info(0.4))
    counterparty.refusals["GetCheckpoint"].append(busy)
    side.ask(lambda client: client.checkpoints.get("a", timeout=10))
    first, second = counterparty.deadlines["GetCheckpoint"]
    assert first is not None
    # gRPC rounds deadlines on the wire by up to three per cent.
    assert second <= first - 0.1


def test_backoff_grows_is_bounded_and_has_jitter() -> None:
    policy = RetryPolicy(attempts=9, initial=0.1, multiplier=2, maximum=0.5)
    for failures, base in [(1, 0.1), (2, 0.2), (3, 0.4), (4, 0.5), (8, 0.5)]:
        delays = {policy.delay(Unavailable("x"), failures) for _ in range(20)}
        assert len(delays) > 1
        assert all(delay is not None and base <= delay <= 1.2 * base for delay in delays)
    assert policy.delay(Unavailable("x"), 9) is None


@pytest.mark.parametrize("name", ["attempts", "initial", "multiplier", "maximum"])
@pytest.mark.parametrize("number", [math.nan, -math.inf, -1, "3", None])
def test_a_policy_of_no_time_is_an_argument_error(name: str, number: float) -> None:
    with pytest.raises(ArgumentError) as raised:
        RetryPolicy(**{name: number})
    assert raised.value.field == name


def test_the_server_is_never_asked_sooner_than_it_said() -> None:
    policy = RetryPolicy(maximum=0.1)
    delay = policy.delay(ResourceExhausted("x", retry_after=7.0), 1)
    assert delay >= 7.0


def test_streams_of_an_upload_go_on_after_more_errors_and_for_longer() -> None:
    policy = RetryPolicy()
    for error in (Unavailable("x"), DeadlineExceeded("x"), Aborted("x"), OFFSET):
        assert policy.upload_delay(error, 23) is not None
        assert policy.upload_delay(error, 24) is None
        assert RetryPolicy(attempts=1).upload_delay(error, 1) is None
    assert policy.upload_delay(Internal("x"), 1) is None
    waits = sum(policy.upload_delay(Unavailable("x"), n) or 0 for n in range(1, 25))
    assert 90 < waits < 120  # longer than a server takes to start again


def test_looks_for_a_server_grow_apart_up_to_a_second() -> None:
    assert [RetryPolicy().look(times) for times in (1, 2, 9)] == [0.1, 0.2, 1.0]
    hasty = RetryPolicy(initial=0, maximum=0)
    assert hasty.look(5) == hasty.poll() == 0.01  # a policy without waits is no busy loop
