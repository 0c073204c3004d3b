"""Live planning is watched for drift: what is observed, and what a reference file does."""

import json
import math
import resource
from pathlib import Path

import numpy as np
import pytest
from acpc.contract import GaussianNoise
from acpc_server.errors import FailedPrecondition
from acpc_server.evidence import DriftTerms
from acpc_server.interactive.certify import certify_pool
from acpc_server.interactive.drift import MAX_DIGESTS, DriftMonitor, Signals
from acpc_server.interactive.planning import Planner
from acpc_server.observe import Metrics, Shift
from acpc_server.observe.metrics import MAX_PERTURBATIONS
from planning_world import PlanningWorld, context, drawn, moment, pool
from structlog.testing import capture_logs

TERMS = DriftTerms(20, 1, 0.01)
DIGEST = "sha256:1"


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "drift.json"


def read(metrics: Metrics, name: str, shift: Shift, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"acpc_drift_{name}", {**shift._asdict(), **labels})


def observe(
    monitor: DriftMonitor, shift: Shift, count: int, scale: float = 1.0, digest: str = DIGEST
) -> None:
    rng = np.random.default_rng(count)
    for acpc in scale * rng.lognormal(size=count):
        monitor.observe(shift, digest, Signals(1.0, acpc, 0.5))


def alarms(metrics: Metrics, shift: Shift) -> set[str]:
    return {name for name in Signals._fields if read(metrics, "alarm", shift, signal=name)}


def test_the_signal_that_moved_raises_its_alarm(metrics: Metrics, file: Path) -> None:
    monitor = DriftMonitor(metrics, TERMS, file)
    shift, other = metrics.shift("m", "jpeg:20"), metrics.shift("m", "jpeg:50")
    for moved, scale in ((shift, 100.0), (other, 1.0)):
        observe(monitor, moved, 20)
        assert read(metrics, "observations_total", moved, part="reference") == 20
        observe(monitor, moved, 30, scale)
        assert read(metrics, "observations_total", moved, part="test") == 30
    assert alarms(metrics, shift) == {"acpc"}
    assert alarms(metrics, other) == set()


def test_a_reference_outlives_the_process(metrics: Metrics, file: Path) -> None:
    shift = metrics.shift("m", "jpeg:20")
    observe(DriftMonitor(metrics, TERMS, file), shift, 20)
    later = Metrics()
    monitor = DriftMonitor(later, TERMS, file)
    observe(monitor, later.shift("m", "jpeg:20"), 30, 100.0)
    assert alarms(later, shift) == {"acpc"}


def test_other_weights_have_another_reference(metrics: Metrics, file: Path) -> None:
    shift = metrics.shift("m", "jpeg:20")
    monitor = DriftMonitor(metrics, TERMS, file)
    observe(monitor, shift, 20)
    observe(monitor, shift, 20, 100.0, digest="sha256:2")
    observe(monitor, shift, 30, 100.0, digest="sha256:2")
    assert alarms(metrics, shift) == set()
    assert [kept["digest"] for kept in json.loads(file.read_text())] == [DIGEST, "sha256:2"]


def test_weights_used_in_turn_each_have_a_reference_and_an_alarm(
    metrics: Metrics, file: Path
) -> None:
    monitor, shift = DriftMonitor(metrics, TERMS, file), metrics.shift("m", "jpeg:20")
    rng = np.random.default_rng(0)
    for session in range(50):
        moved = 100.0 if session >= 20 else 1.0  # of the first weights only
        for digest, scale in ((DIGEST, moved), ("sha256:2", 1.0)):
            monitor.observe(shift, digest, Signals(1.0, scale * rng.lognormal(), 0.5))
    assert read(metrics, "observations_total", shift, part="reference") == 40
    assert alarms(metrics, shift) == {"acpc"}
    later = Metrics()
    again = DriftMonitor(later, TERMS, file)
    for digest in (DIGEST, "sha256:2"):
        observe(again, shift, 1, digest=digest)
    assert read(later, "observations_total", shift, part="test") == 2


def test_the_alarm_of_weights_out_of_use_ends(metrics: Metrics, file: Path) -> None:
    monitor, shift = DriftMonitor(metrics, TERMS, file), metrics.shift("m", "jpeg:20")
    observe(monitor, shift, 20)
    observe(monitor, shift, 30, 100.0)
    observe(monitor, shift, 19, digest="sha256:2")
    assert alarms(metrics, shift) == {"acpc"}
    observe(monitor, shift, 1, digest="sha256:2")
    assert alarms(metrics, shift) == set()


def test_the_oldest_of_many_weights_are_forgotten(metrics: Metrics, file: Path) -> None:
    monitor, shift = DriftMonitor(metrics, TERMS, file), metrics.shift("m", "jpeg:20")
    other = metrics.shift("m", "jpeg:50")
    observe(monitor, other, 20)
    for number in range(MAX_DIGESTS + 1):
        observe(monitor, shift, 20, digest=f"sha256:{number}")
    kept = {(one["perturbation"], one["digest"]) for one in json.loads(file.read_text())}
    newest = {("jpeg:20", f"sha256:{number}") for number in range(1, MAX_DIGESTS + 1)}
    assert kept == {("jpeg:50", DIGEST)} | newest
    observe(monitor, shift, 20, digest="sha256:0")
    reference = 20 * (MAX_DIGESTS + 2)
    assert read(metrics, "observations_total", shift, part="reference") == reference


def test_servers_may_share_a_file(metrics: Metrics, file: Path) -> None:
    monitors = [DriftMonitor(metrics, TERMS, file) for _ in range(2)]
    for monitor, name in zip(monitors, ("jpeg:20", "jpeg:50"), strict=True):
        observe(monitor, metrics.shift("m", name), 20)
    kept = json.loads(file.read_text())
    assert {entry["perturbation"] for entry in kept} == {"jpeg:20", "jpeg:50"}
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_what_has_a_reference_has_its_series_whoever_else_comes_first(
    metrics: Metrics, file: Path
) -> None:
    observe(DriftMonitor(metrics, TERMS, file), metrics.shift("m", "jpeg:20"), 20)
    later = Metrics()
    DriftMonitor(later, TERMS, file)
    for number in range(2 * MAX_PERTURBATIONS):
        later.shift("m", f"gaussian_noise:{number}")
    assert not later.shift("m", "jpeg:20").shared


def test_labels_for_several_have_no_test(metrics: Metrics, file: Path) -> None:
    for number in range(MAX_PERTURBATIONS):
        metrics.shift("m", f"gaussian_noise:{number}")
    shift = metrics.shift("m", "jpeg:20")
    observe(DriftMonitor(metrics, TERMS, file), shift, 20)
    assert read(metrics, "observations_total", shift, part="reference") is None


def test_a_full_volume_leaves_no_half_file_and_only_delays_the_whole(
    metrics: Metrics, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor, shift = DriftMonitor(metrics, TERMS, file), metrics.shift("m", "jpeg:20")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with capture_logs() as logs:  # captured: no log may grow either
            observe(monitor, shift, 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [one["event"] for one in logs] == ["drift_reference", "drift_reference_not_kept"]
    assert list(file.parent.iterdir()) == []
    observe(monitor, shift, 30, 100.0)
    assert alarms(metrics, shift) == {"acpc"}
    assert list(file.parent.iterdir()) == [], "it is not tried at every observation"
    monkeypatch.setattr("acpc_server.interactive.drift.time.monotonic", lambda: math.inf)
    observe(monitor, shift, 1)
    later = Metrics()  # with room again, the file has the reference for the next process
    observe(DriftMonitor(later, TERMS, file), later.shift("m", "jpeg:20"), 30, 100.0)
    assert alarms(later, later.shift("m", "jpeg:20")) == {"acpc"}


def test_a_file_that_cannot_be_written_costs_the_reference_only_when_the_process_ends(
    metrics: Metrics, tmp_path: Path
) -> None:
    monitor = DriftMonitor(metrics, TERMS, tmp_path / "missing" / "drift.json")
    shift = metrics.shift("m", "jpeg:20")
    observe(monitor, shift, 20)
    observe(monitor, shift, 30, 100.0)
    assert alarms(metrics, shift) == {"acpc"}


@pytest.mark.parametrize("change", [{"spacing": 0}, {"acpc": [1.0]}, {"acpc": []}, {"more": 1}])
def test_a_file_that_is_none_of_references_says_what_is_wrong(
    metrics: Metrics, file: Path, change: dict[str, object]
) -> None:
    observe(DriftMonitor(metrics, TERMS, file), metrics.shift("m", "jpeg:20"), 20)
    (entry,) = json.loads(file.read_text())
    file.write_text(json.dumps([{**entry, **change}]))
    with pytest.raises(FailedPrecondition, match=r"drift\.json is no file of drift references: 0"):
        DriftMonitor(Metrics(), TERMS, file)


def test_a_session_is_one_observation_of_its_first_pool_and_draw(
    own_world: PlanningWorld, file: Path
) -> None:
    """However many pools and draws it has."""
    world, metrics = own_world, own_world.engine.metrics
    monitor = DriftMonitor(metrics, DriftTerms(5, 1), file)
    planner = Planner(world.engine, max_frames=1000, max_predictions=100_000, drift=monitor)
    wanted = []
    for seed in range(5):
        asked = moment(seed, views=drawn(GaussianNoise(0.05)))
        session = planner.encode(planner.prepare(world.checkpoint(), asked), context())
        answers = [certify_pool(session, pool(n), context()).answer for n in range(2)]
        view, gaps = answers[0].views[0], answers[0].clean_gaps
        wanted.append((view.acpc_q90, 1 - view.top1.margin / gaps.top1))
    shift = metrics.shift("m0", "gaussian_noise:0.05")
    assert read(metrics, "observations_total", shift, part="reference") == 5
    (entry,) = json.loads(file.read_text())
    assert entry["digest"] == world.checkpoint().model.card.digest
    kept = list(zip(entry["acpc"], entry["margin"], strict=True))
    assert kept == [pytest.approx(row) for row in wanted]
    assert len(set(entry["encoder_shift"])) == 5
