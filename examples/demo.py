"""Judge three trained world models over gRPC, and say in plain words what came out.

    python examples/demo.py            (or: make demo)

Starts a real server on the checkpoints in examples/two_room, drives it with the real client, and
writes build/demo/results.json and build/demo/verdicts.png.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from acpc.contract import AnchorSource
from acpc_client import AcpcClient, DatasetAnchors, GaussianNoise, Interval, Outcome, Pair, Score
from acpc_server.data import Anchors, DatasetStore
from picture import draw
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
SIGMA = 0.08
STEP_ANCHORS = 20


def score_all(client: AcpcClient, console: Console) -> dict[str, Score]:
    """One ScoreCheckpoint job per checkpoint, with a live bar."""
    scores = {}
    columns = (
        TextColumn("{task.description:<20}"),
        BarColumn(),
        TextColumn("{task.fields[phase]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        for name in CHECKPOINTS:
            bar = bars.add_task(name, phase="")
            job = client.score_checkpoint(
                name,
                DatasetAnchors("two-room.h5", "two-room.yaml"),
                GaussianNoise(SIGMA),
                reference=REFERENCE,
            )
            for operation in job.watch():
                step = operation.progress
                bars.update(bar, completed=step.completed, total=step.total, phase=step.phase)
            scores[name] = job.result()
    return scores


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


def row(name: str, score: Score) -> dict[str, object]:
    """One entry of results.json."""
    return {
        "checkpoint": name,
        "reference": REFERENCE,
        "shift": "gaussian_noise",
        "sigma": SIGMA,
        "ir_raw": score.checkpoint.ir_raw,
        "ir_rel": score.verdict.ir_relative,
        "sr": score.checkpoint.sr,
        "score": score.verdict.score,
        "passed": score.verdict.outcome is Outcome.PASSED,
        "evidence": score.evidence and score.evidence.to_dict(),
    }


def explain(scores: dict[str, Score], console: Console) -> None:
    """The table, and what it means to somebody who has not read the paper."""
    thresholds = scores[REFERENCE].verdict.thresholds
    table = Table(title=f"Does the model survive sensor noise of sigma {SIGMA}?")
    for column in ("checkpoint", "relative IR", "SR", "score S", "verdict", "sure?"):
        table.add_column(column, justify="left" if column == "checkpoint" else "right")
    for name, score in scores.items():
        verdict, found = score.verdict, score.evidence
        passed = verdict.outcome is Outcome.PASSED
        if found is None or found.ir_relative is None:
            raise SystemExit("the server did not say how sure it is")
        undecided = found.confident_outcome is Outcome.UNDECIDED
        table.add_row(
            f"{name}\n[dim]{CHECKPOINTS[name]}[/dim]",
            f"{verdict.ir_relative:.2f}\n[dim]{_ends(found.ir_relative)}[/dim]",
            f"{score.checkpoint.sr:.2f}\n[dim]{_ends(found.sr)}[/dim]",
            f"{verdict.score:+.2f}",
            "[green]passes[/green]" if passed else "[red]fails[/red]",
            "[yellow]undecided[/yellow]" if undecided else f"{found.sure:.0%}",
        )
    console.print(table)
    console.print(
        "Relative IR: how far noise pushes the predicted future, against the model trained on "
        f"clean frames; at most {thresholds.ir} passes.\n"
        "SR: how often two different states are still predicted apart, beyond that push; at least "
        f"{thresholds.sr} passes.\n"
        "Below each number: where it lies at 95 % confidence, over the anchors that might have "
        "been drawn. A verdict is sure where both intervals lie on one side of their thresholds; "
        "otherwise it is undecided: other anchors might say otherwise.\n"
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
            "\nThe last one is the trap. It hardly reacts to noise, because it hardly reacts to "
            f"anything: its states lie {latent:.3f} apart where a healthy model's lie "
            f"{healthy:.1f} apart. Judged by IR alone it would ship; SR stops it."
        )


def _ends(interval: Interval) -> str:
    return f"{interval.lower:.2f} to {interval.upper:.2f}"


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "demo")
    out: Path = parser.parse_args().out.resolve()
    console = Console()
    console.print("Writing 120 logged episodes of the two-room world")
    datasets = dataset_folder(out)
    source = AnchorSource("two-room.h5", "two-room.yaml", count=100)
    anchors = DatasetStore(datasets).anchors(source, history=3, horizon=8)
    console.print("Starting a server and scoring three checkpoints")
    with (
        running_server(WORLD / "checkpoints", datasets, out / "state") as address,
        AcpcClient(address) as client,
    ):
        scores = score_all(client, console)
        steps = {name: steps_of(client, anchors, score) for name, score in scores.items()}
    explain(scores, console)
    results = out / "results.json"
    verdicts = [row(name, score) for name, score in scores.items()]
    results.write_text(json.dumps({"verdicts": verdicts}, indent=2) + "\n")
    picture = out / "verdicts.png"
    draw(picture, scores, steps, anchors.read_frames(0, 1)[0, 0], SIGMA)
    console.print(f"\nNumbers: {results}\nPicture: {picture}", highlight=False)


if __name__ == "__main__":
    main()
