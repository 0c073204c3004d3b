"""Closed-loop evaluation: what the studies are given."""

from collections.abc import Sequence

import pytest
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import GaussianBlur, GaussianNoise, Identity, Perturbation, Score
from acpc_client.errors import ArgumentError
from acpc_lab.evaluation import SuccessRows, shift_rows, sweep_rows
from acpc_lab.studies import (
    STUDIES,
    CheckpointRows,
    Evidence,
    StudyCheckpoint,
    gain_interval,
    read_checkpoints,
    success_interval,
)
from acpc_lab.tables import parse_csv

NOISE, BLUR = GaussianNoise(0.08), GaussianBlur(5)
LEVELS = (0.0, 0.04, 0.08)


def evaluated(
    rows: Sequence[StudyCheckpoint], shifts: Sequence[Perturbation], seeds: Sequence[int]
) -> SuccessRows:
    """Ten episodes a seed: an odd one loses one, and level 0 four more under a shift."""
    lines = ["task,run,level,checkpoint,shift,seed,episodes,successes"]
    for row in rows:
        for shift in (Identity(), *shifts):
            lost = 4 * (row.level == 0 and shift != Identity())
            lines += [
                f"{row.task},{row.run},{row.level},{row.checkpoint.name},{shift},{seed},10,"
                f"{10 - lost - seed % 2}"
                for seed in seeds
            ]
    return parse_csv("\n".join(lines), SuccessRows)


def checkpoints(tasks: Sequence[str] = ("a", "b")) -> tuple[StudyCheckpoint, ...]:
    lines = ["task,run,level,checkpoint,dataset,preset"]
    lines += [f"{task},0,{level},{task}-{level},d.h5,t" for task in tasks for level in LEVELS]
    return read_checkpoints(parse_csv("\n".join(lines), CheckpointRows))


def scores(rows: Sequence[StudyCheckpoint]) -> list[tuple[StudyCheckpoint, Score]]:
    def score(row: StudyCheckpoint) -> Score:
        side = pb.CheckpointScore(ir_raw=2.0 - 20 * row.level, sr=0.5 if row.level == 0 else 0.98)
        return Score.from_message(pb.ScoreCheckpointResponse(checkpoint=side))

    return [(row, score(row)) for row in rows]


def test_successes_go_straight_into_the_threshold_study() -> None:
    rows = checkpoints()
    success = evaluated(rows, [NOISE], (1, 2))
    sweep = sweep_rows(scores(rows), success, NOISE)
    assert sweep.success_clean_seeds.tolist() == ["90 100"] * 6
    assert sweep.episodes.tolist() == [20.0] * 6
    assert sweep.success_noisy.tolist() == [55.0, 95.0, 95.0] * 2
    assert sweep.ir_raw.tolist() == pytest.approx([2.0, 1.2, 0.4] * 2)
    summary = Evidence.of(STUDIES["thresholds"], sweep).summary
    assert [task.recovered_levels for task in summary.tasks] == [(0.04, 0.08)] * 2
    (run, _) = summary.runs
    assert run.clean_success_interval == (success_interval(95.0, 20),) * 3
    assert run.success_interval[0] == success_interval(55.0, 20)
    assert run.undecided_levels == (0.04, 0.08)  # 95 % of 20 is [76, 99], and 87 % is wanted
    with pytest.raises(ArgumentError, match="a, run 0, level 0 was not evaluated under"):
        sweep_rows(scores(rows), success, BLUR)


def test_successes_go_straight_into_the_cross_shift_study() -> None:
    rows = [row for row in checkpoints() if row.level != 0.04]
    success = evaluated(rows, [BLUR, NOISE], (2,))
    pairs = shift_rows({shift: scores(rows) for shift in (BLUR, NOISE)}, success)
    assert pairs.shift.tolist() == [str(BLUR)] * 2 + [str(NOISE)] * 2
    assert pairs.success_gain.tolist() == [40.0] * 4
    assert pairs.clean_gain.tolist() == [0.0] * 4
    assert pairs.ir_rel.tolist() == pytest.approx([0.2] * 4)
    assert pairs.sr_reference.tolist() == [0.5] * 4
    summary = Evidence.of(STUDIES["shifts"], pairs).summary
    assert all(pair.better for pair in summary.pairs)
    assert [pair.gain_interval for pair in summary.pairs] == [gain_interval(100.0, 60.0, 10)] * 4
    with pytest.raises(ArgumentError, match="a, run 0: level 0 is missing"):
        shift_rows({BLUR: scores(rows[1:])}, success)
