"""Closed-loop evaluation: what is kept, what is resumed, and what the studies are given."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import CheckpointRef, GaussianBlur, GaussianNoise, Identity, Perturbation, Score
from acpc_client.errors import ArgumentError
from acpc_lab.evaluation import evaluate_all, shift_rows, sweep_rows
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


@dataclass
class Corridor:
    """A world in which level k of run r succeeds in so many of ten episodes, less under a shift."""

    asked: list[tuple[str, str, tuple[int, ...]]] = field(default_factory=list)
    stops_after: int = 1000
    answer: list[int] | None = None

    def evaluate(
        self, checkpoint: CheckpointRef, shift: Perturbation, seeds: Sequence[int], episodes: int
    ) -> list[int]:
        if len(self.asked) == self.stops_after:
            raise KeyboardInterrupt
        self.asked.append((checkpoint.name, str(shift), tuple(seeds)))
        if self.answer is not None:
            return self.answer
        robust = float(checkpoint.name.split("-")[1]) > 0
        return [episodes - (0 if robust or shift == Identity() else 4) - seed % 2 for seed in seeds]


def checkpoints(tasks: Sequence[str] = ("a", "b")) -> tuple[StudyCheckpoint, ...]:
    lines = ["task,run,level,checkpoint,dataset,preset"]
    lines += [f"{task},0,{level},{task}-{level},d.h5,t" for task in tasks for level in LEVELS]
    return read_checkpoints(parse_csv("\n".join(lines), CheckpointRows))


def scores(rows: Sequence[StudyCheckpoint]) -> list[tuple[StudyCheckpoint, Score]]:
    def score(row: StudyCheckpoint) -> Score:
        side = pb.CheckpointScore(ir_raw=2.0 - 20 * row.level, sr=0.5 if row.level == 0 else 0.98)
        return Score.from_message(pb.ScoreCheckpointResponse(checkpoint=side))

    return [(row, score(row)) for row in rows]


def test_what_was_evaluated_is_not_evaluated_again(tmp_path: Path) -> None:
    """After an interruption, with another seed, and with another shift, only the rest is."""
    path, rows = tmp_path / "success.csv", checkpoints(["a"])
    first = Corridor(stops_after=4)
    with pytest.raises(KeyboardInterrupt):
        evaluate_all(lambda _: first, rows, [NOISE], path, seeds=(1, 2), episodes=10)
    then = Corridor()
    evaluate_all(lambda _: then, rows, [NOISE], path, seeds=(1, 2), episodes=10)
    assert first.asked + then.asked == [
        (f"a-{level}", shift, (1, 2)) for level in LEVELS for shift in ("identity", str(NOISE))
    ]
    more = Corridor()
    found = evaluate_all(lambda _: more, rows[:1], [BLUR], path, seeds=(2, 3), episodes=10)
    assert more.asked == [("a-0.0", "identity", (3,)), ("a-0.0", str(BLUR), (2, 3))]
    assert len(found) == 3 * 2 * 2 + 3
    assert found.successes.tolist()[:4] == [9, 10, 5, 6]


@pytest.mark.parametrize("answer", [[3], [3, 11], [-1, 3]])
def test_impossible_successes_are_rejected(tmp_path: Path, answer: list[int]) -> None:
    world = Corridor(answer=answer)
    with pytest.raises(ArgumentError, match="wanted 2 counts of 0 to 10"):
        evaluate_all(
            lambda _: world, checkpoints(), [], tmp_path / "s.csv", seeds=(1, 2), episodes=10
        )
    assert not (tmp_path / "s.csv").exists()


def test_successes_go_straight_into_the_threshold_study(tmp_path: Path) -> None:
    rows = checkpoints()
    success = evaluate_all(
        lambda _: Corridor(), rows, [NOISE], tmp_path / "s.csv", seeds=(1, 2), episodes=10
    )
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


def test_successes_go_straight_into_the_cross_shift_study(tmp_path: Path) -> None:
    rows = [row for row in checkpoints() if row.level != 0.04]
    success = evaluate_all(
        lambda _: Corridor(), rows, [BLUR, NOISE], tmp_path / "s.csv", seeds=(2,), episodes=10
    )
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
