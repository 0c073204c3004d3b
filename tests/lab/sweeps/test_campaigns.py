"""The engine under sweeps, studies and callbacks, on tasks that nobody writes down."""

import pytest
from acpc_client import AcpcClient, DatasetAnchors, GaussianNoise
from acpc_lab.campaigns import (
    Stopped,
)
from acpc_lab.integrations import EpochScore, EpochScorer
from job_counterparty import JobParty
from waiting import wait_until


@pytest.mark.parametrize("closed", [False, True])
def test_a_scorer_hands_out_each_score_as_its_job_ends_and_every_shift_once(
    client: AcpcClient, party: JobParty, closed: bool
) -> None:
    party.looks = 10**6
    shifts = [GaussianNoise(0.02), GaussianNoise(0.08)]
    early: list[EpochScore] = []
    with EpochScorer(client, DatasetAnchors("rooms.h5", "tworoom"), shifts) as scorer:
        scorer.submit(3, "a")
        wait_until(lambda: len(party.jobs) == 2)
        slow, fast = party.jobs.values()
        fast.looks = 0
        wait_until(lambda: early.extend(scorer.arrived()) or bool(early))
        assert not scorer.drain(0), "the other shift is still measured"
        if not closed:
            slow.looks = 0
            assert scorer.drain(60)
    (first,), (last,) = early, scorer.arrived()
    assert [(item.epoch, item.shift) for item in (first, last)] == [(3, shifts[1]), (3, shifts[0])]
    assert (first.error, first.score is None) == (None, False)
    assert isinstance(last.error, Stopped) if closed else last.error is None
