"""Run the paper's studies on the demonstration's checkpoints.

    python examples/study_demo.py            (or: make study-demo)

Starts a real server, runs `acpc study ...` as a user would, verifies every folder it wrote, and
says what each study found. What `acpc` printed lies beside them in build/study-demo. Run it again
after an interruption: checkpoints that are measured are not measured again. The pages of
docs/studies set the summaries beside the paper's.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

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


def _finding(name: str, found: dict[str, Any]) -> str:
    """What a study found, of its summary."""
    match name:
        case "drift":
            lower, rows = found["reduction"]["over_base"]["mean"], found["rows"]
            broken = f"{found['bound_violations']} of {rows} rows break its bound"
            return f"ACPC lowers the error of the predicted drift by {lower:.0%}; {broken}"
        case "sensitivity":
            ratios = [one["ratio"] for one in found["ratios"]]
            span = f"{min(ratios):.2g} to {max(ratios):.2g}"
            return f"augmented, a checkpoint is {span} times as sensitive to small noise"
        case "geometry":
            far: dict[bool, list[float]] = {False: [], True: []}
            for one in found["spaces"]:
                far[one["level"] > 0].append(one["median_ratio"])
            plain, trained = (sum(part) / len(part) for part in far.values())
            reach = "times as far as the nearest other history"
            return f"views lie {plain:.2f} {reach}, of augmented checkpoints {trained:.2f}"
        case "horizons":
            return f"at every horizon and quantile at most {found['largest']:.2f} of IR is left"
        case "collapse":
            fooled = ", which has collapsed" * found["fooled"]
            exposed = "exposes" if found["exposed"] else "does not expose"
            return f"raw IR alone prefers {found['lowest_ir']}{fooled}; SR {exposed} the collapse"
        case _:
            lower, broken = found["reduction"]["mean"], found["broken_certificates"]
            kept = f"{broken} of {found['rows']} runs broke a certificate"
            return f"ACPC lowers the error of the predicted regret by {lower:.0%}; {kept}"


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "study-demo")
    parser.add_argument("--only", choices=STUDIES, action="append", help="repeatable")
    options = parser.parse_args()
    out: Path = options.out.resolve()
    chosen = options.only or [*STUDIES]
    for name, seed in DATASETS.items():
        if any(f"{name}.h5" in row for study in chosen for row in STUDIES[study][0]):
            datasets = dataset_folder(out, name, "--seed", str(seed), "--episodes", "160")
    findings: list[str] = []
    with running_server(WORLD, datasets, out / "state") as address:
        for name in chosen:
            rows, extra = STUDIES[name]
            table, folder = out / f"{name}.csv", out / name
            table.write_text("\n".join(("task,run,level,checkpoint,dataset,preset", *rows)) + "\n")
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
            with (out / f"{name}.txt").open("a") as text:
                if not (folder / "study.json").exists() and acpc(address, *asked, out=text):
                    sys.exit(1)
                if acpc(address, "verify", str(folder), out=text):
                    sys.exit(1)
            summary = json.loads((folder / "summary.json").read_text())["answer"]
            findings.append(f"{name}: {_finding(name, summary)}")
    print("", *findings, sep="\n")
    print(f"\nTables (*.txt), rows, summaries and figures of every study: {out}")


if __name__ == "__main__":
    main()
