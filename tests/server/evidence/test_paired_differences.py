"""Differences of two checkpoints on the same anchors: the page's formulas, laws, known truth."""

import operator
from dataclasses import replace

import evidence_reference as reference
import numpy as np
import pytest
from acpc.contract import EvidenceOptions, ScoreProtocol
from acpc.evidence import paired_differences
from acpc_server.evidence import CheckpointSample
from synthetic_scores import Population, trio

PROTOCOL, OPTIONS = ScoreProtocol(), EvidenceOptions(resamples=200, seed=3)
CLUSTERED = Population(
    150, per_trajectory=3, within=0.5, radius=0.8, common=0.8, distance=2.2, own_distance=0.3
)


def compared(seed: int, population: Population = CLUSTERED) -> tuple[tuple, dict]:
    drawn = trio(population, np.random.default_rng(seed))
    return drawn, paired_differences(*drawn, PROTOCOL, OPTIONS)


def test_the_intervals_are_those_of_the_page() -> None:
    (first, second, _), found = compared(4)
    group, partner = first.trajectory.tolist(), first.partner.tolist()
    radii, distances = (
        [getattr(side, name).tolist() for side in (first, second)]
        for name in ("radius", "distance")
    )
    asked = (OPTIONS.resamples, OPTIONS.seed, 0.05)
    for name, change in (("ir_raw", operator.sub), ("ir_ratio", operator.truediv)):
        wanted = reference.change_bounds(change, *radii, group, 0.9, *asked)
        point, interval = found[name]
        assert (interval.lower, interval.upper) == pytest.approx(wanted, rel=1e-9)
        assert point == change(np.quantile(radii[1], 0.9), np.quantile(radii[0], 0.9))
    wanted = reference.paired_share_bounds(radii, distances, partner, group, 0.9, 0.1, *asked)
    point, interval = found["sr"]
    assert (point, interval.lower, interval.upper) == pytest.approx(wanted, rel=1e-6)
    assert abs(point) > 0.02  # some pairs differ


def test_what_does_not_differ_has_no_difference() -> None:
    (first, _, against), _ = compared(6)
    found = paired_differences(first, first, against, PROTOCOL, OPTIONS)
    assert found["ir_raw"][0] == found["ir_raw"][1].lower == found["ir_raw"][1].upper == 0
    assert found["ir_ratio"][1].lower == found["ir_ratio"][1].upper == 1
    assert (
        found["sr"] is not None
        and found["sr"][1].lower < found["sr"][0] == 0 < found["sr"][1].upper
    )


@pytest.mark.parametrize(
    "population",
    [
        Population(8),  # the quantile lies above all anchors
        replace(CLUSTERED, per_trajectory=50),  # three trajectories say nothing of others
        # An unseen tenth may be of another kind.
        replace(CLUSTERED, anchors=30, per_trajectory=1),
    ],
    ids=["few anchors", "few trajectories", "not one in ten of them for sure"],
)
def test_little_to_go_by_gives_no_bounds(population: Population) -> None:
    _, found = compared(7, population)
    assert (found["ir_raw"][1].lower, found["ir_raw"][1].upper) == (-np.inf, np.inf)
    assert (found["ir_ratio"][1].lower, found["ir_ratio"][1].upper) == (0, np.inf)
    assert found["sr"] is None or (found["sr"][1].lower, found["sr"][1].upper) == (-1, 1)


def test_no_reference_and_no_partner_leave_their_numbers_out() -> None:
    (first, second, _), _ = compared(8)
    lonely = replace(first, partner=np.full_like(first.partner, -1))
    found = paired_differences(lonely, second, None, PROTOCOL, OPTIONS)
    assert (found["ir_relative"], found["sr"]) == (None, None)


def test_where_raw_ir_jumps_a_difference_of_sr_is_not_surer_than_both_raw_ir() -> None:
    """Six and fourteen of 100 radii are 1, so either raw IR may lie on the other side of 0.9."""
    distance, anchors = np.where(np.arange(100) % 2, 3.0, 0.6), np.arange(100)
    first, second = (
        CheckpointSample(np.where(anchors < bad, 1.0, 0.1), distance, (anchors + 1) % 100, anchors)
        for bad in (6, 14)
    )
    found = paired_differences(first, second, None, ScoreProtocol(), EvidenceOptions())["sr"]
    assert found is not None and found[0] == -0.5
    assert found[1].lower < found[0] and found[1].upper >= 0
