"""Plan through the sweep's checkpoints in the two-room world, and set success beside IR and SR.

    python examples/closed_loop_demo.py            (or: make closed-loop-demo)

Starts a real server, scores every checkpoint, lets a CEM planner act through it on clean, noisy,
blurred and resized frames, and runs the threshold and the cross-shift study on both. Everything is
left in build/closed-loop-demo; run it again after an interruption, and what is done is not done
again. What it shows is in docs/studies/closed-loop.md.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from acpc_client import (
    AcpcClient,
    GaussianBlur,
    GaussianNoise,
    Identity,
    Perturbation,
    Resize,
    ScoreProtocol,
)
from acpc_lab.evaluation import SuccessRows, shift_rows, sweep_rows
from acpc_lab.studies import (
    Ask,
    CheckpointRows,
    StudyCheckpoint,
    measure,
    read_checkpoints,
    success_interval,
)
from acpc_lab.tables import parse_csv, read_rows, to_csv
from rich.console import Console
from rich.table import Table
from server_process import HERE, WORLD, acpc, dataset_folder, running_server

sys.path.insert(0, str(WORLD))

from closed_loop import TwoRooms

# Two sets of episodes of one world stand in for two tasks where a study leaves one out.
DATASETS = {"two-room": 9101, "two-room-b": 9102}
RUNS, LEVELS = (0, 1), ("0.00", "0.02", "0.04", "0.08", "0.16")
TRAINED_ON = GaussianNoise(0.08)
NEW_SHIFTS = (GaussianBlur(5), Resize(0.5))
SEEDS = (42, 43, 44)  # those of the paper, section "Models, Tasks, and Evaluation"


def checkpoints(levels: tuple[str, ...]) -> tuple[StudyCheckpoint, ...]:
    """The sweep's checkpoints of both tasks and runs."""
    lines = ["task,run,level,checkpoint,dataset,preset"]
    lines += [
        f"{task},{run},{level},noise-{level}-run-{run},{task}.h5,two-room.yaml"
        for task in DATASETS
        for run in RUNS
        for level in levels
    ]
    return read_checkpoints(parse_csv("\n".join(lines), CheckpointRows))


def evaluated(
    worlds: dict[str, TwoRooms],
    rows: tuple[StudyCheckpoint, ...],
    shifts: Sequence[Perturbation],
    path: Path,
    episodes: int,
) -> SuccessRows:
    """Plans through every checkpoint, clean and shifted; what the file has is not done again."""
    header = ",".join(field.name for field in SuccessRows.fields())
    lines = path.read_text().splitlines() if path.exists() else [header]
    done = {line.rpartition(",")[0] for line in lines}
    for row in rows:
        for shift in (Identity(), *shifts):
            level, name = f"{row.level:g}", row.checkpoint.name
            where = [f"{row.task},{row.run},{level},{name},{shift},{x},{episodes}" for x in SEEDS]
            if not done.issuperset(where):
                found = worlds[row.task].evaluate(row.checkpoint, shift, SEEDS, episodes)
                lines += [f"{at},{count}" for at, count in zip(where, found, strict=True)]
                path.write_text("\n".join(lines))
    return read_rows(path, SuccessRows)


def scored(
    client: AcpcClient, rows: tuple[StudyCheckpoint, ...], shift: Perturbation
) -> list[tuple[StudyCheckpoint, object]]:
    """Every checkpoint with its score under the shift."""
    measured = measure(client, rows, Ask(ScoreProtocol(), shift))
    return [(item.row, item.answer) for item in measured]


def show(success: SuccessRows, console: Console) -> None:
    """Success of both tasks and all seeds, by checkpoint and shift."""
    shifts = list(dict.fromkeys(success.shift.tolist()))
    title = "Episodes that reach the goal, in %, with 95 % intervals (Wilson)"
    table = Table(title=title, box=None)  # 80 columns hold every cell
    for column in ("level", "run", *shifts):
        table.add_column(column, justify="right", no_wrap=True)
    for level, run in dict.fromkeys(zip(success.level.tolist(), success.run.tolist(), strict=True)):
        cells = []
        for shift in shifts:
            mine = (success.level == level) & (success.run == run) & (success.shift == shift)
            episodes = int(success.episodes[mine].sum())
            percent = 100 * success.successes[mine].sum() / max(episodes, 1)
            found = success_interval(percent, episodes or math.nan)
            ends = "" if found is None else f" [{found[0]:.0f}, {found[1]:.0f}]"
            cells.append(f"{percent:.0f}{ends}" if episodes else "-")
        table.add_row(f"{level:g}", run, *cells)
    console.print(table)


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "closed-loop-demo")
    parser.add_argument("--episodes", type=int, default=10, help="of each seed: %(default)s")
    options = parser.parse_args()
    out: Path = options.out.resolve()
    for name, seed in DATASETS.items():
        datasets = dataset_folder(out, name, "--seed", str(seed))
    everything, pairs = checkpoints(LEVELS), checkpoints((LEVELS[0], LEVELS[-1]))
    with running_server(WORLD / "sweep", datasets, out / "state") as address:
        with AcpcClient(address) as client:
            worlds = {name: TwoRooms(client, seed) for name, seed in DATASETS.items()}
            file, episodes = out / "success.csv", options.episodes
            evaluated(worlds, everything, [TRAINED_ON], file, episodes)
            success = evaluated(worlds, pairs, NEW_SHIFTS, file, episodes)
            sweep = sweep_rows(scored(client, everything, TRAINED_ON), success, TRAINED_ON)
            scores = {shift: scored(client, pairs, shift) for shift in NEW_SHIFTS}
            compared = shift_rows(scores, success)
        show(success, Console())
        for name, rows in (("thresholds", sweep), ("shifts", compared)):
            (out / f"{name}.csv").write_text(to_csv(rows))
            if acpc(address, "study", "run", name, "--rows", str(out / f"{name}.csv")):
                sys.exit(1)
    print(f"\nSuccesses, and the rows of both studies: {out}")


if __name__ == "__main__":
    main()
