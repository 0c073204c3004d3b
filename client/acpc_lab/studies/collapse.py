"""Collapse control: raw IR, SR and median latent distance side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from acpc.contract import GaussianNoise, Record, bounded, columns_of
from acpc_client import ScoreProtocol
from acpc_client.errors import ArgumentError

from acpc_lab.studies.base import Answers, Parameters, Study
from acpc_lab.studies.figures import Listing
from acpc_lab.studies.measuring import Ask
from acpc_lab.studies.statistics import CLEAN_SEEDS, clean_success, records
from acpc_lab.tables import Arrays, Numbers, Rows, Texts, column, optional


class CollapseRows(Rows):
    """A row per checkpoint, all of one task and scored on the same anchors and shift."""

    checkpoint: Texts = column("name or label, for example the SIGReg weight")
    median_latent_distance: Numbers = column("median distance between clean representations", low=0)
    ir_raw: Numbers = column("raw IR", low=0)
    sr: Numbers = column("separation rate", 0, 1)
    success_clean: Numbers = optional("success on clean views, in %", 0, 100)
    success_clean_seeds: Texts = optional(CLEAN_SEEDS)


class CollapseParameters(Parameters):
    """Parameters that define a collapse.

    Attributes:
        distance_share: Collapsed: less latent distance than this share of the largest. The paper
            needs no such cutoff: its collapsed checkpoint keeps 0.0003 of the spread.
    """

    distance_share: float = bounded(0.01, gt=0, lt=1)


class CollapseLine(Record):
    """One checkpoint; clean success is in %, over evaluation seeds where these are given."""

    checkpoint: str
    median_latent_distance: float
    distance_share: float
    ir_raw: float
    sr: float
    success_clean: float | None
    collapsed: bool
    success_clean_sd: float | None


class CollapseSummary(Record):
    """The answer of the collapse control.

    Raw IR alone would prefer ``lowest_ir``, and is fooled where that has collapsed. A collapse is
    ``exposed`` where SR is lower than in every other checkpoint; None: all have collapsed, or none.
    """

    checkpoints: tuple[CollapseLine, ...]
    lowest_ir: str
    lowest_sr: str
    fooled: bool
    exposed: bool | None


def summarise(
    rows: CollapseRows, parameters: CollapseParameters, arrays: Arrays
) -> CollapseSummary:
    """Table "SR under representation collapse" in the paper.

    Raises ArgumentError: A checkpoint occurs twice, or every representation is the same point.
    """
    rows.require_unique("checkpoint")
    distance, names = rows.median_latent_distance, rows.checkpoint.tolist()
    if not distance.any():
        wrong = "is 0 in every row; wanted at least one checkpoint with spread"
        raise ArgumentError("median_latent_distance", wrong)
    share = distance / distance.max()
    collapsed = share < parameters.distance_share
    exposed = None
    if 0 < collapsed.sum() < len(rows):
        exposed = bool(rows.sr[collapsed].max() < rows.sr[~collapsed].min())
    preferred = int(np.argmin(rows.ir_raw))
    clean = clean_success(rows.success_clean, rows.success_clean_seeds)
    absent: Any = None
    success, deviation = (np.where(np.isnan(found), absent, found) for found in clean)
    columns = (rows.checkpoint, distance, share, rows.ir_raw, rows.sr, success, collapsed)
    return CollapseSummary(
        checkpoints=records(CollapseLine, *columns, deviation),
        lowest_ir=names[preferred],
        lowest_sr=names[int(np.argmin(rows.sr))],
        fooled=bool(collapsed[preferred]),
        exposed=exposed,
    )


def shown(summary: CollapseSummary) -> Iterator[str | Listing]:
    """The checkpoints, and which of them IR and SR tell apart."""
    columns = (
        ("checkpoint", "checkpoint"),
        ("median latent distance", "median_latent_distance", ".4g"),
        ("raw IR", "ir_raw", ".3f"),
        ("SR", "sr", ".3f"),
        ("clean success %", "success_clean", ".1f"),
        ("its SD", "success_clean_sd", ".1f"),
        ("collapsed", "collapsed"),
    )
    yield Listing(summary.checkpoints, columns, "checkpoints")
    yield f"raw IR alone prefers {summary.lowest_ir}" + ", which has collapsed" * summary.fooled
    if summary.exposed is not None:
        yield f"SR {'exposes' if summary.exposed else 'does not expose'} the collapse"


def _gather(answers: Answers, *_: Any) -> tuple[CollapseRows, Arrays]:  # noqa: ANN401
    """A row per checkpoint, under its own name.

    Raises ArgumentError: The checkpoints were not scored on the same anchors.
    """
    digests = {row.checkpoint.name: score.receipt.anchors_digest for row, score in answers}
    if len(set(digests.values())) > 1:
        wrong = f"differ between {', '.join(digests)}; a comparison needs the same ones"
        raise ArgumentError("anchors", wrong)
    rows, sides = [row for row, _ in answers], [score.checkpoint for _, score in answers]
    measured = columns_of(sides, "median_latent_distance", "ir_raw", "sr")
    given = columns_of(rows, "success_clean", "success_clean_seeds")
    names = [row.checkpoint.name for row in rows]
    return CollapseRows.of({"checkpoint": names, **measured, **given}), {}


STUDY = Study(
    "collapse",
    "Does SR expose a collapsed representation that raw IR prefers?",
    summarise,
    shown,
    "weight 0 has the lowest raw IR, 0.048, and the lowest SR, 0.066; the others have SR "
    "0.967 to 0.984",
    (
        "acpc study run collapse --checkpoints weights.csv --out collapse/",
        "acpc study run collapse --rows paper",
    ),
    Ask(ScoreProtocol(), GaussianNoise(0.005)),
    gather=_gather,
)
