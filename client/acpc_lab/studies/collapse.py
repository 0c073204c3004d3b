"""Collapse control: raw IR, SR and median latent distance side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from acpc.contract import Record
from acpc_client.errors import ArgumentError

from acpc_lab.studies.base import Parameters, or_none, records
from acpc_lab.studies.success import clean_success
from acpc_lab.tables import Arrays, Column, Numbers, Rows, Texts


@dataclass(frozen=True, eq=False)
class CollapseRows(Rows):
    """A row per checkpoint, all of one task and scored on the same anchors and shift."""

    checkpoint: Annotated[Texts, Column("name or label, for example the SIGReg weight")]
    median_latent_distance: Annotated[
        Numbers, Column("median distance between clean representations", low=0)
    ]
    ir_raw: Annotated[Numbers, Column("raw IR", low=0)]
    sr: Annotated[Numbers, Column("separation rate", low=0, high=1)]
    success_clean: Annotated[
        Numbers, Column("success on clean views, in %", low=0, high=100, optional=True)
    ]
    success_clean_seeds: Annotated[
        Texts, Column("the same by evaluation seed, for example 95 98 96", optional=True)
    ]


@dataclass(frozen=True)
class CollapseParameters(Parameters):
    """What counts as collapsed.

    Attributes:
        distance_share: A checkpoint counts as collapsed when its median latent distance is below
            this share of the largest one. The paper needs no such cutoff: its collapsed checkpoint
            keeps 0.0003 of the spread.
    """

    distance_share: float = 0.01

    def __post_init__(self) -> None:
        self.require("distance_share", 0 < self.distance_share < 1, "a share in (0, 1)")


@dataclass(frozen=True, repr=False, eq=False)
class CollapseLine(Record):
    """One checkpoint.

    Attributes:
        distance_share: Its latent distance over the largest one.
        success_clean: In %, the mean over evaluation seeds where these are given.
        success_clean_sd: Its deviation over evaluation seeds, in points; None without them.
    """

    checkpoint: str
    median_latent_distance: float
    distance_share: float
    ir_raw: float
    sr: float
    success_clean: float | None
    collapsed: bool
    success_clean_sd: float | None


@dataclass(frozen=True, repr=False, eq=False)
class CollapseSummary(Record):
    """The answer of the collapse control.

    Attributes:
        lowest_ir: Checkpoint that raw IR alone would prefer.
        lowest_sr: Checkpoint that SR likes least.
        fooled: Raw IR alone would prefer a collapsed checkpoint.
        exposed: Every collapsed checkpoint has a lower SR than every other; None when none is
            collapsed, or all are.
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
    names = rows.checkpoint.tolist()
    largest = float(rows.median_latent_distance.max())
    if largest == 0:
        raise ArgumentError(
            "median_latent_distance",
            "is 0 in every row; wanted at least one checkpoint with spread",
        )
    share = rows.median_latent_distance / largest
    collapsed = share < parameters.distance_share
    exposed = None
    if 0 < collapsed.sum() < len(rows):
        exposed = bool(rows.sr[collapsed].max() < rows.sr[~collapsed].min())
    preferred = int(np.argmin(rows.ir_raw))
    success, deviation = (
        or_none(column) for column in clean_success(rows.success_clean, rows.success_clean_seeds)
    )
    return CollapseSummary(
        checkpoints=records(
            CollapseLine,
            rows.checkpoint,
            rows.median_latent_distance,
            share,
            rows.ir_raw,
            rows.sr,
            success,
            collapsed,
            deviation,
        ),
        lowest_ir=names[preferred],
        lowest_sr=names[int(np.argmin(rows.sr))],
        fooled=bool(collapsed[preferred]),
        exposed=exposed,
    )
