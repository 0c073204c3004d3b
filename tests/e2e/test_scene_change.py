"""A scene that changes under a live planner raises the drift alarm of a real server."""

from pathlib import Path

import grpc
import numpy as np
import planning_wire
import wire
from acpc.v1 import diagnostic_service_pb2_grpc
from job_world import write_job_world
from prometheus_client.parser import text_string_to_metric_families
from server_process import ServerProcess

TERMS = {"drift_observations": 20, "drift_spacing": 1, "drift_alpha": 0.01}


def plan(server: ServerProcess, seeds: range, *, lit: bool) -> None:
    """A stream a seed, of two pools each; in the dark a frame has a tenth of its light."""
    with grpc.insecure_channel(server.address) as channel:
        stub = diagnostic_service_pb2_grpc.DiagnosticServiceStub(channel)
        for seed in seeds:
            frames = wire.frames(wire.HISTORY, seed=seed)
            history = wire.tensor(frames if lit else (frames // 10).astype(np.uint8))
            views = wire.several(wire.noise(0.05), draws=2, seed=3)
            start = planning_wire.start(
                checkpoint={"name": "model"}, history=history, perturbations=views
            )
            pools = [planning_wire.explicit(planning_wire.pool(seed=seed + i), i) for i in (0, 1)]
            assert len(list(stub.Plan(iter([start, *pools])))) == 3


def drift(server: ServerProcess, name: str) -> dict[str, float]:
    """Samples of a series by their last label."""
    families = text_string_to_metric_families(server.metrics())
    samples = [s for family in families for s in family.samples if s.name == f"acpc_drift_{name}"]
    shifts = {(s.labels.pop("checkpoint"), s.labels.pop("perturbation")) for s in samples}
    assert shifts <= {("model", "gaussian_noise:0.05")}
    return {value: s.value for s in samples for value in s.labels.values()}


def test_a_scene_that_changes_raises_the_alarm_and_one_that_does_not_raises_none(
    tmp_path: Path,
) -> None:
    world = write_job_world(tmp_path)
    quiet = dict.fromkeys(("encoder_shift", "acpc", "margin"), 0.0)
    with world.server("state", **TERMS) as server:
        plan(server, range(20), lit=True)
        assert drift(server, "observations_total") == {"reference": 20}
        plan(server, range(20, 40), lit=True)
        assert drift(server, "alarm") == quiet
        plan(server, range(40, 60), lit=False)
        assert drift(server, "observations_total") == {"reference": 20, "test": 40}
        assert drift(server, "alarm")["encoder_shift"] == 1
        warned = server.wait_for_log(
            lambda line: line["event"] == "drift" and line["signal"] == "encoder_shift"
        )
        assert warned["log_evidence"] > np.log(len(quiet) / TERMS["drift_alpha"])
