"""Says what a score is to a tracker: metrics and tags by name, and files, at a step of a run."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from acpc.contract import changed, to_plain
from acpc_client import Score
from acpc_client.errors import ArgumentError, FailedPrecondition

from acpc_lab.integrations import EpochScore
from acpc_lab.sweeps import CellResult
from acpc_lab.watching import ScoredCheckpoint, run_of

Scored = EpochScore | CellResult | ScoredCheckpoint


@dataclass(frozen=True)
class ScoreRecord:
    """One checkpoint under one shift, for any tracker.

    Attributes:
        run: Training run that the checkpoint is of: its name at the server, without the epoch.
        step: Epoch of the checkpoint in that run.
        name: What is measured, for example ``acpc/gaussian_noise_0.08``; every metric and tag is
            named below it.
        metrics: Finite numbers: IR, SR, relative IR, S, the ends of their intervals, ``passed``.
        tags: Verdicts, digests and the job, as text.
        files: Content by name: ``receipt.json``, and ``figure.png`` where there is one.
    """

    run: str
    step: int
    name: str
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    files: Mapping[str, bytes]


def record_of(item: EpochScore, prefix: str = "acpc") -> ScoreRecord:
    """What an epoch's score says.

    Raises:
        ArgumentError: It has no score.
    """
    score = item.score
    if score is None:
        raise ArgumentError("item", "has no score")
    metrics = {name: x for name, x in item.metrics(prefix).items() if math.isfinite(x)}
    name = next(iter(metrics)).rpartition("/")[0]
    sure = score.evidence
    tags = {
        "shift": str(item.shift),
        "verdict": score.verdict.outcome.name.lower(),
        "confident_verdict": sure.confident_outcome.name.lower() if sure else "",
        "checkpoint": f"{item.checkpoint.name} {item.checkpoint.weights}".strip(),
        "checkpoint_digest": score.receipt.checkpoint_digest,
        "operation": item.operation,
    }
    files = {"receipt.json": json.dumps(to_plain(score.receipt), indent=1).encode()}
    return ScoreRecord(
        run_of(item.checkpoint, item.epoch),
        item.epoch,
        name,
        metrics,
        {f"{name}/{key}": value for key, value in tags.items() if value},
        files | _figure(score),
    )


def epochs_of(scored: Scored) -> Iterator[tuple[EpochScore, str]]:
    """What has a score in it, as scores of epochs, each with the prefix of its names."""
    if isinstance(scored, EpochScore):
        if scored.score is not None:
            yield scored, "acpc"
        return
    items: Iterable[CellResult]
    if isinstance(scored, ScoredCheckpoint):
        items = scored.results
        epoch: int | None = scored.arrival.epoch or 0
    else:
        items, epoch = (scored,), None
    for item in items:
        cell, near = item.cell, changed(item.cell.protocol).get("neighbourhood")
        prefix = "acpc" if cell.seed == 0 else f"acpc/seed{cell.seed}"
        prefix += "" if near is None else f"/neighbourhood{near:g}"
        found = EpochScore.numbered(cell.checkpoint, cell.shift, item.operation, item.score)
        if epoch is not None:
            found = dataclasses.replace(found, epoch=epoch, step=epoch)
        if found.score is not None:
            yield found, prefix


def _figure(score: Score) -> dict[str, bytes]:
    """Its picture; none without values per anchor, or without matplotlib."""
    from acpc_lab import report  # noqa: PLC0415  slow to import

    with contextlib.suppress(ArgumentError, FailedPrecondition):
        return {"figure.png": report.picture(score).png()}
    return {}
