"""What live planning tells the metrics, by checkpoint and perturbation."""

from contextlib import nullcontext

import pytest
from acpc.contract import CoverageGoal, GaussianNoise, Identity, Perturbation, Registered
from acpc_server.interactive.certify import certify_pool
from acpc_server.interactive.coverage import cover_pool
from acpc_server.interactive.tally import Tally
from acpc_server.numerics import consistency
from acpc_server.observe import Metrics
from acpc_server.observe.metrics import MAX_PERTURBATIONS, OTHER
from acpc_server.scheduling import Priority, RequestContext
from planning_world import PlanningWorld, context, drawn, moment, pool

NOISE = GaussianNoise(0.05)


def read(metrics: Metrics, name: str, spec: object, **labels: str) -> float | None:
    asked = {"checkpoint": "m0", "perturbation": str(spec), **labels}
    return metrics.registry.get_sample_value(name, asked)


def test_a_session_is_recorded_as_it_was_answered(own_world: PlanningWorld) -> None:
    session = own_world.open(moment(views=drawn(Identity(), NOISE, draws=2)))
    answers = [certify_pool(session, pool(seed), context()).answer for seed in range(3)]
    metrics = own_world.engine.metrics
    views = [view for answer in answers for view in answer.views if view.spec_index == 1]
    assert read(metrics, "acpc_planning_acpc_count", NOISE) == len(views) == 6
    total = sum(view.acpc_q90 for view in views)
    assert read(metrics, "acpc_planning_acpc_sum", NOISE) == pytest.approx(total)
    moved = consistency.encoder_shift(session.clean, session.views[1:])
    assert read(metrics, "acpc_planning_encoder_shift_count", NOISE) == 2  # once a session
    shifted = read(metrics, "acpc_planning_encoder_shift_sum", NOISE)
    assert shifted == pytest.approx(float(moved.sum()))
    for certificate in ("top1", "elite"):
        margins = [
            getattr(view, certificate).margin / getattr(answer.clean_gaps, certificate)
            for answer in answers
            for view in answer.views
            if view.spec_index == 1
        ]
        series, labels = "acpc_planning_margin", {"certificate": certificate}
        assert read(metrics, f"{series}_count", NOISE, **labels) == len(margins)
        certified = len(margins) - sum(margin <= 0 for margin in margins)
        denied = read(metrics, f"{series}_bucket", NOISE, le="0.0", **labels)
        assert denied == len(margins) - certified
        granted = {"outcome": "certified", **labels}
        assert (read(metrics, "acpc_certificates_total", NOISE, **granted) or 0) == certified
        # Nothing moved: margins are 1, up to how they are rounded.
        assert read(metrics, f"{series}_bucket", Identity(), le="0.99", **labels) == 0
        assert read(metrics, "acpc_certificates_total", Identity(), **granted) == 6


def test_statements_about_all_draws_are_counted(own_world: PlanningWorld) -> None:
    goal = CoverageGoal(coverage=0.7, max_draws=10)
    session = own_world.open(moment(views=drawn(Identity(), NOISE), coverage_goal=goal))
    asked = context()
    measured = certify_pool(session, pool(), asked)
    answer = cover_pool(measured, asked, lambda _: nullcontext(context()))
    for spec, statement in zip((Identity(), NOISE), answer.coverage, strict=True):
        for certificate in ("top1", "elite"):
            found = getattr(statement, certificate).outcome.name.lower()
            labels = {"certificate": certificate, "outcome": found}
            series = "acpc_coverage_statements_total"
            assert read(own_world.engine.metrics, series, spec, **labels) == 1


def test_what_a_job_computes_is_not_live(own_world: PlanningWorld) -> None:
    certify_pool(own_world.open(moment()), pool(), RequestContext(Priority.JOB))
    text = [family for family in own_world.engine.metrics.registry.collect() if family.samples]
    assert not [family.name for family in text if family.name.startswith("acpc_planning")]


@pytest.mark.parametrize(
    ("spec", "label"),
    [
        (NOISE, "gaussian_noise:0.05"),
        (Registered("dust", {"severity": 0.5, "colour": 3.0}), "dust:0.5"),
    ],
)
def test_a_label_is_a_kind_and_its_severity(
    own_world: PlanningWorld, spec: Perturbation, label: str
) -> None:
    tally = Tally(own_world.engine.metrics, own_world.checkpoint(), drawn(spec))
    assert tally.shifts == (("m0", label),)


def test_a_checkpoint_has_series_for_the_perturbations_seen_first() -> None:
    metrics = Metrics()
    for number in range(100):
        metrics.acpc.labels(*metrics.shift("m0", f"gaussian_noise:{number}")).observe(0.1)
    metrics.acpc.labels(*metrics.shift("m1", "gaussian_noise:99")).observe(0.1)
    assert read(metrics, "acpc_planning_acpc_count", "gaussian_noise:0") == 1
    assert read(metrics, "acpc_planning_acpc_count", OTHER) == 100 - MAX_PERTURBATIONS
    assert metrics.shift("m0", "gaussian_noise:99").shared
    assert not metrics.shift("m1", "gaussian_noise:99").shared
