"""Run the paper's studies on the demonstration's checkpoints, and say what reproduced.

    python examples/study_demo.py            (or: make study-demo)

Starts a real server, runs `acpc study ...` as a user would, verifies every folder it wrote and
compares the summaries with what the paper found. Everything is left in build/study-demo. Run it
again after an interruption: checkpoints that are measured are not measured again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from acpc_lab.studies import bundle
from acpc_lab.studies.collapse import CollapseSummary
from acpc_lab.studies.drift import DriftSummary
from acpc_lab.studies.geometry import GeometrySummary
from acpc_lab.studies.horizons import HorizonSummary
from acpc_lab.studies.planner import PlannerSummary
from acpc_lab.studies.sensitivity import SensitivitySummary
from acpc_lab.studies.statistics import Spread
from rich.console import Console
from rich.table import Table
from server_process import HERE, WORLD, acpc, dataset_folder, running_server

HEADER = "task,run,level,checkpoint,dataset,preset"
# One world twice, in other episodes, stands in for two tasks where a study leaves one out.
DATASETS = {"two-room": 9101, "two-room-b": 9102}
RUNS = (0, 1)


class Finding(NamedTuple):
    """Something the paper found, whether it holds here, and the numbers of both.

    Attributes:
        holds: None where nothing here puts it to the test.
        paper: The paper's number for the same thing, on its own tasks and models.
    """

    claim: str
    holds: bool | None
    numbers: str
    paper: str = ""


SHOWN = {True: "[green]holds[/green]", False: "[yellow]does not[/yellow]", None: "not tested"}


@dataclass(frozen=True)
class Study:
    """One study of the demonstration."""

    command: tuple[str, ...]
    checkpoints: tuple[str, ...]
    findings: Callable[[Any], list[Finding]]


def drift_findings(summary: DriftSummary) -> list[Finding]:
    """Whether ACPC beats Base and the best control in every cell."""
    cells, found = summary.cells, summary.reduction
    best = f"best in {found.improved} of {found.cells} cells"
    return [
        Finding(
            "Base+ACPC beats Base",
            all(c.acpc < c.base for c in cells),
            f"error {_spread(found.over_base)} lower, {best}",
            "55.9 % ± 4.7 %, 12 of 12",
        ),
        Finding(
            "Base+ACPC beats the best control",
            all(c.acpc < c.control for c in cells),
            f"error {_spread(found.over_control)} lower",
            "51.3 % ± 3.5 %",
        ),
        Finding(
            "no drift exceeds ACPC",
            summary.bound_violations == 0,
            f"{summary.rows} rows, at most {summary.tightest:.2f} of it",
            "no violation",
        ),
    ]


def _spread(found: Spread) -> str:
    return f"{100 * found.mean:.1f} % ± {100 * found.sd:.1f} %"


def sensitivity_findings(summary: SensitivitySummary) -> list[Finding]:
    """Whether both estimators fall with augmentation."""
    return [
        Finding(
            f"ratio below one, {r.method}, run {r.run}",
            r.ratio + 2 * r.standard_error < 1,
            f"{r.ratio:.4f} ± {r.standard_error:.4f}",
            "below one in every task",
        )
        for r in summary.ratios
    ]


# Median r/NN and the disjoint fraction, unaugmented and augmented: PushT, noise 0.08.
PAPER_GEOMETRY = {
    "encoder": ("1.41 to 0.10", "0 % to 95.3 %"),
    "rollout": ("1.86 to 0.19", "0 % to 84.4 %"),
}


def geometry_findings(summary: GeometrySummary) -> list[Finding]:
    """Whether views come closer to their own history than to others."""
    findings = []
    for space, (ratio, disjoint) in PAPER_GEOMETRY.items():
        for run in map(str, RUNS):
            ours = [s for s in summary.spaces if (s.space, s.run) == (space, run)]
            plain, augmented = sorted(ours, key=lambda s: s.level)
            findings += [
                Finding(
                    f"r/NN falls, {space}, run {run}",
                    augmented.median_ratio < plain.median_ratio,
                    f"{plain.median_ratio:.2f} to {augmented.median_ratio:.2f}",
                    ratio,
                ),
                Finding(
                    f"disjoint fraction rises, {space}, run {run}",
                    augmented.disjoint > plain.disjoint,
                    f"{100 * plain.disjoint:.0f} % to {100 * augmented.disjoint:.0f} %",
                    disjoint,
                ),
            ]
    return findings


def horizon_findings(summary: HorizonSummary) -> list[Finding]:
    """Whether IR falls at every horizon and quantile."""
    ratios = [entry.ratio for entry in summary.entries]
    return [
        Finding(
            "IR falls at every horizon and quantile",
            summary.largest < 1,
            f"ratios {min(ratios):.2f} to {max(ratios):.2f}",
            "0.02 to 0.09",
        )
    ]


def collapse_findings(summary: CollapseSummary) -> list[Finding]:
    """Whether SR sees the collapse that raw IR does not."""
    collapsed = [line for line in summary.checkpoints if line.collapsed]
    healthy = [line for line in summary.checkpoints if not line.collapsed]
    numbers = "; ".join(
        f"{line.checkpoint.removeprefix('checkpoints/two-room-')}: IR {line.ir_raw:.3f}, "
        f"SR {line.sr:.2f}, distance {line.median_latent_distance:.2g}"
        for line in summary.checkpoints
    )
    unaugmented = next(line for line in healthy if line.checkpoint.endswith("base"))
    known = bool(collapsed) or None
    return [
        Finding(
            "SR exposes the collapse",
            known and summary.exposed is True,
            numbers,
            "collapsed: IR 0.048, SR 0.07, distance 0.006; healthy: IR 1.026, SR 0.97, distance 17",
        ),
        Finding(
            "its raw IR is below the unaugmented one's",
            known and all(line.ir_raw < unaugmented.ir_raw for line in collapsed),
            "",
            "0.048 against 1.026",
        ),
        Finding(
            "its raw IR is the lowest of all",
            known and summary.fooled,
            f"lowest: {summary.lowest_ir}",
            "lowest: the collapsed one",
        ),
    ]


def planner_findings(summary: PlannerSummary) -> list[Finding]:
    """Whether planner-horizon ACPC helps on the episodes left out."""
    return [
        Finding(
            "ACPC at the planner's horizon lowers the error",
            summary.reduction.mean > 0,
            f"{_spread(summary.reduction)}, {summary.improved} of {len(summary.cells)} cells",
            "15.2 % ± 2.0 %, 12 of 12",
        ),
        Finding(
            "no certified run diverged",
            summary.broken_certificates == 0 if summary.certified else None,
            f"{100 * summary.certified:.0f} % of {summary.rows} paired runs certified",
        ),
    ]


def _sweep(task: str, run: int, level: str) -> str:
    return f"{task},{run},{level},sweep/noise-{level}-run-{run},{task}.h5,two-room.yaml"


def _demo(name: str, level: str) -> str:
    return f"two-room,{name},{level},checkpoints/two-room-{name},two-room.h5,two-room.yaml"


UNAUGMENTED = tuple(_sweep("two-room", run, "0.00") for run in RUNS)
PAIRS = tuple(_sweep("two-room", run, level) for run in RUNS for level in ("0.00", "0.16"))
TASKS = tuple(
    _sweep(task, run, level) for task in DATASETS for run in RUNS for level in ("0.00", "0.16")
)
STUDIES = {
    "drift": Study(("drift",), UNAUGMENTED, drift_findings),
    "sensitivity": Study(("sensitivity", "--anchors", "16"), PAIRS, sensitivity_findings),
    "geometry": Study(("geometry", "--anchors", "128"), PAIRS, geometry_findings),
    "horizons": Study(("horizons",), PAIRS, horizon_findings),
    "collapse": Study(
        ("collapse",),
        (_demo("base", "0"), _demo("augmented", "0.16"), _demo("collapsed", "0.16")),
        collapse_findings,
    ),
    "planner": Study(("planner", "--anchors", "24"), TASKS, planner_findings),
}


def run_study(name: str, study: Study, address: str, out: Path) -> list[Finding]:
    """Measure, verify and read one study."""
    table, folder = out / f"{name}.csv", out / name
    table.write_text("\n".join((HEADER, *study.checkpoints)) + "\n")
    if not (folder / "study.json").exists():  # else it is from an earlier run
        _acpc(address, "study", *study.command, "--checkpoints", str(table), "--out", str(folder))
    _acpc(address, "study", "verify", str(folder))
    return study.findings(bundle.read(folder).evidence().summary)


def _acpc(address: str, *arguments: str) -> None:
    code = acpc(address, *arguments)
    if code:
        sys.exit(code)


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "study-demo")
    parser.add_argument("--only", choices=STUDIES, action="append", help="repeatable")
    options = parser.parse_args()
    out: Path = options.out.resolve()
    for name, seed in DATASETS.items():
        datasets = dataset_folder(out, name, "--seed", str(seed), "--episodes", "160")
    table = Table(title="The paper's findings on the demonstration's checkpoints")
    for column in ("study", "finding", "here", "numbers", "in the paper"):
        table.add_column(column, overflow="fold")
    with running_server(WORLD, datasets, out / "state") as address:
        for name in options.only or STUDIES:
            for finding in run_study(name, STUDIES[name], address, out):
                shown = SHOWN[finding.holds]
                table.add_row(name, finding.claim, shown, finding.numbers, finding.paper)
    Console().print(table)
    print(
        "A direction that holds reproduces little: compare the numbers. The paper's are of larger "
        "models on four tasks; here two-room-b is the world of two-room again, in other episodes."
    )
    print(f"\nRows, summaries and figures of every study: {out}")


if __name__ == "__main__":
    main()
