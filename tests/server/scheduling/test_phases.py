"""Where the time of a request went."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from acpc_server.scheduling import Priority, RequestContext


def spent(context: RequestContext) -> float:
    return sum(context.phases.values()) + context.other_seconds


def test_in_one_thread_no_second_counts_twice_and_none_is_missing() -> None:
    context = RequestContext(Priority.JOB)
    for _ in range(3):
        time.sleep(0.002)
        with context.phase("intervals"):
            time.sleep(0.002)
            with context.phase("rollout"):
                time.sleep(0.002)
            context.queued(0.001, "rollout")
    assert context.phases.keys() == {"intervals", "rollout", "queue"}
    assert context.queue_seconds == context.phases["queue"] == pytest.approx(0.003)
    assert min(*context.phases.values(), context.other_seconds) > 0
    before, found, after = context.total_seconds, spent(context), context.total_seconds
    assert before - 1e-6 <= found <= after + 1e-6


def test_what_overlaps_counts_in_each_phase_and_nothing_as_other() -> None:
    context = RequestContext(Priority.JOB)

    def read() -> None:
        with context.phase("read"):
            time.sleep(0.01)

    with ThreadPoolExecutor(1) as thread, context.phase("encode"):
        thread.submit(read).result()
    assert context.phases["read"] <= context.phases["encode"]
    assert context.other_seconds <= context.total_seconds - context.phases["encode"]
