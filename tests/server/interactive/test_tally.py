"""What live planning tells the metrics, by checkpoint and perturbation."""

import math
from dataclasses import replace

import pytest
from acpc.contract import GaussianNoise, Identity, Perturbation
from acpc_server.numerics import consistency
from acpc_server.observe import Metrics
from acpc_server.observe.metrics import MAX_PERTURBATIONS, OTHER
from acpc_server.scheduling import Priority, RequestContext
from planning_world import PlanningWorld, certify_pool, context, drawn, moment, pool

NOISE = GaussianNoise(0.05)


def read(metrics: Metrics, name: str, spec: object, **labels: str) -> float | None:
    asked = {"checkpoint": "m0", "perturbation": str(spec), **labels}
    return metrics.registry.get_sample_value(name, asked)


def test_a_session_is_recorded_as_it_was_answered(own_world: PlanningWorld) -> None:
    session = own_world.open(moment(views=drawn(Identity(), NOISE, draws=2)))
    answers = [certify_pool(session, pool(seed), context()) for seed in range(3)]
    metrics = own_world.engine.metrics
    assert read(metrics, "acpc_planning_relative_shift_count", NOISE) == 2  # once a session
    noisy = [view for answer in answers for view in answer.views if view.spec_index == 1]
    for certificate in ("top1", "elite"):

        def counted(spec: Perturbation, *outcomes: str, certificate: str = certificate) -> float:
            series, labels = "acpc_certificates_total", {"certificate": certificate}
            return sum(read(metrics, series, spec, outcome=x, **labels) or 0 for x in outcomes)

        granted = sum(getattr(view, certificate).certified for view in noisy)
        assert counted(NOISE, "certified") == granted < len(noisy) == 6
        assert counted(NOISE, "choice_changes", "bound_too_wide") == len(noisy) - granted
        assert counted(Identity(), "certified") == 6


def test_shifts_are_told_in_units_of_the_clean_motion(own_world: PlanningWorld) -> None:
    """Of a history with motion; one frame has none, and nor have frames that are all alike."""
    metrics, moving = own_world.engine.metrics, moment(views=drawn(NOISE, draws=2))
    still = replace(moving, history=moving.history[[0, 0, 0]])
    for request in (still, moving):
        session = own_world.open(request)
        certify_pool(session, pool(), context())
    apart = [math.dist(*session.clean[i : i + 2].double().tolist()) for i in (0, 1)]
    moved = consistency.encoder_shift(session.clean, session.views)
    assert read(metrics, "acpc_planning_relative_shift_count", NOISE) == 2
    total = read(metrics, "acpc_planning_relative_shift_sum", NOISE)
    assert total == pytest.approx(float(moved.sum()) / (sum(apart) / 2))


def test_an_answer_is_certified_where_all_of_its_views_are(own_world: PlanningWorld) -> None:
    metrics, counted = own_world.engine.metrics, {"certified": 0, "denied": 0}
    for views in (drawn(Identity()), drawn(Identity(), GaussianNoise(0.5))):
        answer = own_world.certified(moment(views=views), pool())
        whole = all(view.elite is not None and view.elite.certified for view in answer.views)
        counted["certified" if whole else "denied"] += 1
    assert counted == {"certified": 1, "denied": 1}
    for outcome, count in counted.items():
        labels = {"checkpoint": "m0", "outcome": outcome}
        assert metrics.registry.get_sample_value("acpc_planning_calls_total", labels) == count


def test_what_a_job_computes_is_not_live(own_world: PlanningWorld) -> None:
    certify_pool(own_world.open(moment()), pool(), RequestContext(Priority.JOB))
    text = [family for family in own_world.engine.metrics.registry.collect() if family.samples]
    assert not [family.name for family in text if family.name.startswith("acpc_planning")]


def test_a_checkpoint_has_series_for_the_perturbations_seen_first() -> None:
    metrics = Metrics()
    for number in range(100):
        metrics.relative_shift.labels(*metrics.shift("m0", f"gaussian_noise:{number}")).observe(0.1)
    metrics.relative_shift.labels(*metrics.shift("m1", "gaussian_noise:99")).observe(0.1)
    assert read(metrics, "acpc_planning_relative_shift_count", "gaussian_noise:0") == 1
    assert read(metrics, "acpc_planning_relative_shift_count", OTHER) == 100 - MAX_PERTURBATIONS
    assert metrics.shift("m0", "gaussian_noise:99").shared
    assert not metrics.shift("m1", "gaussian_noise:99").shared
