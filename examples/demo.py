"""Judge three trained world models over gRPC, and say in plain words what came out.

    python examples/demo.py            (or: make demo)

Starts a real server on the checkpoints in examples/two_room, drives it with the real client, and
writes build/demo/results.json and build/demo/verdicts.png, which docs/demo.png is a copy of.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from acpc.contract import AnchorSource
from acpc_client import (
    AcpcClient,
    DatasetAnchors,
    Evidence,
    GaussianNoise,
    Interval,
    Outcome,
    Pair,
    Score,
    severities_up_to,
)
from acpc_lab.evidence import SeverityLimit
from acpc_server.data import Anchors, DatasetStore
from picture import Noise, draw
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from server_process import HERE, WORLD, dataset_folder, running_server

REFERENCE = "two-room-base"
CHECKPOINTS = {
    REFERENCE: "trained on clean frames only",
    "two-room-augmented": "trained with noise on its frames",
    "two-room-collapsed": "trained with noise, but without the regulariser that prevents collapse",
}
GOOD = "two-room-augmented"
SIGMA = 0.05
ANCHORS, LIMIT_ANCHORS, FEW_ANCHORS, STEP_ANCHORS = 400, 100, 25, 20
# Where the good one breaks: even steps up to the strongest noise.
STRONGEST, STEPS = 0.4, 8
# Anchors of one episode resemble each other, so there are more episodes than anchors.
EPISODES = 400


def score_all(client: AcpcClient, console: Console) -> tuple[dict[str, Score], Score]:
    """A job for each checkpoint, with a live bar, and one for the good one on few anchors."""
    scores = []
    columns = (
        TextColumn("{task.description:<31}"),
        BarColumn(),
        TextColumn("{task.fields[phase]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        for name, count in (*((name, ANCHORS) for name in CHECKPOINTS), (GOOD, FEW_ANCHORS)):
            bar = bars.add_task(f"{name}, {count} anchors", phase="")
            job = client.score_checkpoint(
                name,
                DatasetAnchors("two-room.h5", "two-room.yaml", count=count),
                GaussianNoise(SIGMA),
                reference=REFERENCE,
            )
            for operation in job.watch():
                step = operation.progress
                bars.update(bar, completed=step.completed, total=step.total, phase=step.phase)
            scores.append(job.result())
    *verdicts, few = scores
    return dict(zip(CHECKPOINTS, verdicts, strict=True)), few


def limit_of(client: AcpcClient, console: Console) -> SeverityLimit:
    """Up to which noise the good one passes."""
    anchors = DatasetAnchors("two-room.h5", "two-room.yaml", count=LIMIT_ANCHORS)
    scored = []
    shifts = severities_up_to(GaussianNoise(STRONGEST), STEPS)
    with console.status("Looking for the noise at which it breaks") as status:
        jobs = [client.score_checkpoint(GOOD, anchors, x, reference=REFERENCE) for x in shifts]
        for shift, job in zip(shifts, jobs, strict=True):
            scored.append((shift, job.result(), job.name))
            status.update(f"{shift}: {scored[-1][1].verdict.outcome.name.lower()}")
    return SeverityLimit.of(scored)


def steps_of(client: AcpcClient, anchors: Anchors, score: Score) -> list[float]:
    """Mean distance after each predicted step, in units of the anchors' clean motion."""
    pairs = (
        Pair(
            anchors.read_frames(index, index + 1)[0, : anchors.history],
            anchors.action_blocks[index],
            perturbations=GaussianNoise(SIGMA),
            anchor=int(anchors.anchor_ids[index]),
        )
        for index in range(STEP_ANCHORS)
    )
    values = score.checkpoint.anchor_values
    if values is None:
        raise SystemExit("the server sent no per-anchor values")
    total = [0.0] * anchors.horizon
    for index, outcome in enumerate(client.compare_pairs(score.checkpoint.checkpoint, pairs)):
        distances = outcome.unwrap().results[0].step_distances
        for step, distance in enumerate(distances):
            total[step] += float(distance / values.motion_scale[index]) / STEP_ANCHORS
    return total


def row(name: str, score: Score, anchors: int = ANCHORS) -> dict[str, object]:
    """One entry of results.json."""
    evidence = _evidence(score)
    return {
        "checkpoint": name,
        "anchors": anchors,
        "reference": REFERENCE,
        "shift": "gaussian_noise",
        "sigma": SIGMA,
        "ir_raw": score.checkpoint.ir_raw,
        "ir_rel": score.verdict.ir_relative,
        "sr": score.checkpoint.sr,
        "score": score.verdict.score,
        "passed": score.verdict.outcome is Outcome.PASSED,
        "sure": evidence.confident_outcome.name.lower(),
        "evidence": evidence.to_dict(),
    }


def explain(scores: dict[str, Score], few: Score, console: Console) -> None:
    """The table, and what it means to somebody who has not read the paper."""
    thresholds = scores[REFERENCE].verdict.thresholds
    console.print(_table(scores))
    console.print(
        "Relative IR: how far noise pushes the predicted future, against the model trained on "
        f"clean frames; at most {thresholds.ir} passes.\n"
        "SR: how often two different states are still predicted apart, beyond that push; at least "
        f"{thresholds.sr} passes.\n"
        "Below each number: where it lies at 95 % confidence, over the anchors (short recordings) "
        "that might have been drawn. A verdict is sure where both intervals lie on one side of "
        "their thresholds.\n"
    )
    for name, score in scores.items():
        console.print(f"[bold]{name}[/bold]: {score.verdict.summary}")
        console.print(f"  How sure: {score.certainty}.")
        if note := score.checkpoint.rounding_note:
            console.print(f"  [dim]{note}[/dim]")
    collapsed = scores["two-room-collapsed"]
    if collapsed.verdict.ir_passed and not collapsed.verdict.sr_passed:
        latent = collapsed.checkpoint.median_latent_distance
        healthy = scores[REFERENCE].checkpoint.median_latent_distance
        console.print(
            "\n[bold]The last one is the trap.[/bold] It hardly reacts to noise, because it hardly "
            f"reacts to anything: its states lie {latent:.3f} apart where a healthy model's lie "
            f"{healthy:.1f} apart. Judged by IR alone it would ship; SR stops it."
        )
    if _evidence(few).confident_outcome is Outcome.UNDECIDED:
        console.print(
            f"\n[bold]The second lesson: few anchors do not decide.[/bold] On {FEW_ANCHORS} "
            f"anchors {GOOD} has SR {few.checkpoint.sr:.2f}, and passes; but it lies anywhere from "
            f"{_ends(few.evidence.sr)}. So that verdict is {few.certainty}. "
            f"On {ANCHORS} it lies from {_ends(scores[GOOD].evidence.sr)}."
        )


def _table(scores: dict[str, Score]) -> Table:
    table = Table(title=f"Does the model survive sensor noise of sigma {SIGMA}? {ANCHORS} anchors")
    for column in ("checkpoint", "relative IR", "SR", "verdict", "sure?"):
        table.add_column(column, justify="left" if column == "checkpoint" else "right")
    for name, score in scores.items():
        verdict, found = score.verdict, _evidence(score)
        passed = verdict.outcome is Outcome.PASSED
        undecided = found.confident_outcome is Outcome.UNDECIDED
        table.add_row(
            f"{name}\n[dim]{CHECKPOINTS[name]}[/dim]",
            f"{verdict.ir_relative:.2f}\n[dim]{_ends(found.ir_relative)}[/dim]",
            f"{score.checkpoint.sr:.2f}\n[dim]{_ends(found.sr)}[/dim]",
            "[green]passes[/green]" if passed else "[red]fails[/red]",
            "[yellow]undecided[/yellow]" if undecided else f"{found.sure:.0%}",
        )
    return table


def _evidence(score: Score) -> Evidence:
    if score.evidence is None or score.evidence.ir_relative is None:
        raise SystemExit("the server did not say how sure it is")
    return score.evidence


def _ends(interval: Interval | None) -> str:
    if interval is None:
        raise SystemExit("the server gave no interval")
    return f"{interval.lower:.2f} to {interval.upper:.2f}"


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "demo")
    out: Path = parser.parse_args().out.resolve()
    console = Console()
    console.print(f"Writing {EPISODES} logged episodes of the two-room world")
    datasets = dataset_folder(out, "two-room", f"--episodes={EPISODES}")
    source = AnchorSource("two-room.h5", "two-room.yaml", count=STEP_ANCHORS)
    anchors = DatasetStore(datasets).anchors(source, history=3, horizon=8)
    console.print("Starting a server: it loads torch, and the first time Python compiles it")
    with (
        running_server(WORLD / "checkpoints", datasets, out / "state") as address,
        AcpcClient(address) as client,
    ):
        scores, few = score_all(client, console)
        limit = limit_of(client, console)
        steps = {name: steps_of(client, anchors, score) for name, score in scores.items()}
    explain(scores, few, console)
    console.print(f"\n[bold]Where it breaks.[/bold] {limit.headline()}. {limit.meaning()}")
    results = out / "results.json"
    verdicts = [row(name, score) for name, score in scores.items()]
    verdicts.append(row(GOOD, few, FEW_ANCHORS))
    results.write_text(
        json.dumps({"verdicts": verdicts, "limit": limit.to_dict()}, indent=2) + "\n"
    )
    picture = out / "verdicts.png"
    draw(
        picture,
        scores,
        steps,
        {FEW_ANCHORS: few, ANCHORS: scores[GOOD]},
        Noise(anchors.read_frames(0, 1)[0, 0], SIGMA),
    )
    console.print(f"\nNumbers: {results}\nPicture: {picture}", highlight=False)


if __name__ == "__main__":
    main()
