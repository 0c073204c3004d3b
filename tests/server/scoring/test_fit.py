"""Skill is a float64 loop's, faults of the data are found and named, and fitting data are not."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pixel_reference as pixels
import pytest
from acpc.contract import CheckpointRef, FitOutcome, Outcome, to_plain
from acpc_server.data import Anchors
from acpc_server.engine import DeviceClient
from acpc_server.models import FrozenWorldModel
from acpc_server.scoring import score
from acpc_server.scoring.fit import FIT_ANCHORS, foreign_rows
from acpc_server.scoring.measuring import CheckpointMeasurement, ShardRecord
from fit_world import FAULTS, FitWorld
from golden import WORLD
from public_checkpoint import public_config
from reference_model import ReferenceModel
from score_specs import bench_of, score_anchors, score_spec

COUNT, HISTORY, HORIZON = 67, 3, 4
SPEC = score_spec(count=COUNT, draws=2, horizon=HORIZON)


@pytest.fixture(scope="module")
def anchors() -> Anchors:
    return score_anchors(SPEC, per_trajectory=2)


@pytest.fixture(scope="module")
def measured(
    engine: DeviceClient, model: FrozenWorldModel, anchors: Anchors
) -> tuple[CheckpointMeasurement, ShardRecord]:
    found = CheckpointMeasurement(bench_of(engine, model, anchors), SPEC)
    shards = [found.shard(rows, fit=True) for rows in SPEC.shards()]
    return found, ShardRecord.concatenate(shards)


def loop(anchors: Anchors, change: Callable[[np.ndarray], np.ndarray], rows: range) -> Any:
    reference = ReferenceModel.of(public_config(), 4)
    totals = {"own": 0.0, "foreign": 0.0, "negated": 0.0, "still": 0.0}
    for i in rows:
        images = pixels.model_input(change(anchors.read_frames(i, i + 1)[0]), reference.image_size)
        latents = reference.encode(images)
        own = anchors.action_blocks[i].astype(np.float64)
        stop = min(10 * (i // 10 + 1), COUNT)  # of its shard
        j = next(
            x
            for x in [*range(i + 1, stop), *range(i - 1, -1, -1)]
            if anchors.trajectory_ids[x] != anchors.trajectory_ids[i]
        )
        mixed = np.concatenate([own[: HISTORY - 1], anchors.action_blocks[j][HISTORY - 1 :]])
        for name, blocks in (("own", own), ("foreign", mixed), ("negated", -own)):
            rollout = reference.rollout(latents[:HISTORY], blocks.astype(np.float64))
            for step in range(HORIZON):
                totals[name] += math.dist(rollout[step], latents[HISTORY + step])
        for step in range(HORIZON):
            totals["still"] += math.dist(latents[HISTORY - 1], latents[HISTORY + step])
    return totals


def test_skill_is_that_of_a_float64_loop(
    measured: tuple[CheckpointMeasurement, ShardRecord], anchors: Anchors
) -> None:
    measurement, record = measured
    fit = measurement.fit(record)
    assert fit is not None
    wanted = loop(anchors, lambda x: x, range(COUNT))
    assert fit.skill == pytest.approx(wanted["own"] / wanted["still"], rel=1e-4)
    first = loop(anchors, lambda x: x, range(FIT_ANCHORS))
    assert fit.foreign == pytest.approx(first["own"] / first["foreign"], rel=1e-4)
    assert fit.anchors == FIT_ANCHORS
    assert fit.tried == ("negated_actions", "bgr", "upside_down", "mirrored")
    exchanged = record.errors["negated_actions"]
    assert np.nansum(exchanged) == pytest.approx(first["negated"], rel=1e-4)
    assert np.isnan(exchanged[FIT_ANCHORS:]).all() and not np.isnan(exchanged[:FIT_ANCHORS]).any()
    for held in (fit.interval, *fit.step_intervals):
        assert held.lower < held.upper
    assert np.mean(fit.step_skill) == pytest.approx(fit.skill, rel=0.1)


def test_a_fit_changes_no_other_number_and_survives_the_record(
    measured: tuple[CheckpointMeasurement, ShardRecord],
) -> None:
    measurement, record = measured
    bare = ShardRecord.concatenate([measurement.shard(rows) for rows in SPEC.shards()])
    assert not bare.errors
    assert measurement.fit(bare) is None, "as in the records of older jobs"
    for name in ("draw_radius", "step_radius", "motion_scale", "history_latents"):
        assert getattr(bare, name).tobytes() == getattr(record, name).tobytes()
    again = ShardRecord.from_json(record.to_json())
    assert measurement.fit(again) == measurement.fit(record)
    older = {k: v for k, v in record.to_json().items() if k != "errors"}
    assert ShardRecord.from_json(older).errors == {}


def test_foreign_rows_are_of_another_trajectory_and_do_not_depend_on_later_shards() -> None:
    trajectory = np.array([0, 0, 1, 1, 1, 2])
    assert foreign_rows(trajectory, range(6)).tolist() == [2, 2, 5, 5, 5, 4]
    assert foreign_rows(trajectory[:5], range(4, 5)).tolist() == [1]
    assert foreign_rows(np.zeros(3, np.int64), range(3)).tolist() == [-1, -1, -1]


@pytest.mark.parametrize("outcome", [FitOutcome.FITS, FitOutcome.DOES_NOT_FIT])
def test_a_misfit_passes_nothing_and_leaves_a_failure_as_it_is(
    measured: tuple[CheckpointMeasurement, ShardRecord], outcome: FitOutcome
) -> None:
    measurement, record = measured
    fit = measurement.fit(record)
    assert fit is not None
    plain = to_plain(replace(fit, outcome=outcome))
    asked = replace(SPEC, reference=CheckpointRef(name="base", digest="c" * 64))
    sides = {"checkpoint": {"ir_raw": 0.1, "sr": 1.0, "fit": plain}}
    sides["reference"] = {"ir_raw": 1.0, "sr": 1.0, "fit": None}
    misfit = outcome is FitOutcome.DOES_NOT_FIT
    found = score.judge(asked, sides)  # type: ignore[arg-type]
    assert found.outcome is (Outcome.DOES_NOT_FIT if misfit else Outcome.PASSED)
    assert ("IR and SR mean nothing: one does not fit" in found.summary) is misfit
    sides["checkpoint"]["sr"] = 0.1
    assert score.judge(asked, sides).outcome is Outcome.FAILED  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> FitWorld:
    root = tmp_path_factory.mktemp("fit")
    names = ("two-room-augmented", "two-room-collapsed")
    folders = [WORLD / "checkpoints" / name for name in names]
    return FitWorld(root, folders, episodes=40, anchors=64)


@pytest.mark.process  # a twentieth of the unit tests' time
@pytest.mark.parametrize("title", FAULTS)
def test_a_fault_of_the_data_is_found_and_named(world: FitWorld, title: str) -> None:
    fault = FAULTS[title]
    world.write("fault", 71, fault)
    found = world.fit("two-room-augmented", "fault", 3)
    assert found.outcome is FitOutcome.DOES_NOT_FIT
    sure = [one.name for one in found.causes if one.sure]
    assert sure[:1] == ([fault.cause] if fault.cause else [])
    if fault.cause:
        assert found.causes[0].skill < 0.25 and "would: error 0." in str(found)
    else:
        assert "left are actions of other rows or of another file" in str(found)


@pytest.mark.process
def test_right_data_fit_and_a_model_that_predicts_nothing_does_not(world: FitWorld) -> None:
    world.write("right", 72)
    for seed in range(3):
        found = world.fit("two-room-augmented", "right", seed)
        assert found.outcome is FitOutcome.FITS and not found.causes
        assert found.skill < 0.25 > (found.foreign or 1)
        assert str(found).startswith("predicts these data: its error is 0.")
    collapsed = world.fit("two-room-collapsed", "right", 0)
    assert collapsed.outcome is not FitOutcome.FITS and collapsed.skill > 0.95
    assert len(collapsed.tried) == 8
