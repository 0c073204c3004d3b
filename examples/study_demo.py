"""Run the paper's studies on the demonstration's checkpoints.

    python examples/study_demo.py            (or: make study-demo)

Starts a real server, runs `acpc study ...` as a user would and verifies every folder it wrote.
Everything is left in build/study-demo. Run it again after an interruption: checkpoints that are
measured are not measured again. The pages of docs/studies set the summaries beside the paper's.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from server_process import HERE, WORLD, acpc, dataset_folder, running_server

# One world twice, in other episodes, stands in for two tasks where a study leaves one out.
DATASETS = {"two-room": 9101, "two-room-b": 9102}


def _rows(tasks: list[str], levels: list[str]) -> list[str]:
    """The sweep's checkpoints of both training runs."""
    return [
        f"{task},{run},{level},sweep/noise-{level}-run-{run},{task}.h5,two-room.yaml"
        for task in tasks
        for run in (0, 1)
        for level in levels
    ]


_PAIRS = _rows(["two-room"], ["0.00", "0.16"])
_DEMO = [
    f"two-room,{name},{level},checkpoints/two-room-{name},two-room.h5,two-room.yaml"
    for name, level in (("base", "0"), ("augmented", "0.16"), ("collapsed", "0.16"))
]
# The checkpoints of each study, and its options.
STUDIES = {
    "drift": (_rows(["two-room"], ["0.00"]), []),
    "sensitivity": (_PAIRS, ["--anchors", "16"]),
    "geometry": (_PAIRS, ["--anchors", "128"]),
    "horizons": (_PAIRS, []),
    "collapse": (_DEMO, []),
    "planner": (_rows([*DATASETS], ["0.00", "0.16"]), ["--anchors", "24"]),
}


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "study-demo")
    parser.add_argument("--only", choices=STUDIES, action="append", help="repeatable")
    options = parser.parse_args()
    out: Path = options.out.resolve()
    for name, seed in DATASETS.items():
        datasets = dataset_folder(out, name, "--seed", str(seed), "--episodes", "160")
    with running_server(WORLD, datasets, out / "state") as address:
        for name in options.only or STUDIES:
            rows, extra = STUDIES[name]
            table, folder = out / f"{name}.csv", out / name
            table.write_text("\n".join(("task,run,level,checkpoint,dataset,preset", *rows)) + "\n")
            print(f"\n{name}")
            asked = [
                "study",
                "run",
                name,
                *extra,
                "--checkpoints",
                str(table),
                "--out",
                str(folder),
            ]
            if not (folder / "study.json").exists() and acpc(address, *asked):
                sys.exit(1)
            if acpc(address, "verify", str(folder)):
                sys.exit(1)
    print(f"\nRows, summaries and figures of every study: {out}")


if __name__ == "__main__":
    main()
