"""Common parts of the studies: what each needs, measures, and adds to the result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from acpc.contract import (
    DriftStudy,
    GeometryStudy,
    GivenViews,
    PerturbationSet,
    PlannerStudy,
    Study,
    grids,
)
from torch import Tensor

from acpc_server.encoding import Bench, Draw, View, check_predictions, distinct_views, draw_views
from acpc_server.errors import InvalidArgument
from acpc_server.jobs import Json, pack, unpack
from acpc_server.models import ModelCard
from acpc_server.perturb import check_drawing
from acpc_server.studies.spec import StudySpec, views_of

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class StudyTable:
    """A part of a study, or all of it."""

    columns: Arrays  # of one axis and one length, in the order of the contract
    # What does not fit a column; the first axis grows from part to part.
    arrays: Arrays = field(default_factory=dict)

    @classmethod
    def join(cls, parts: Sequence[StudyTable]) -> StudyTable:
        """The parts, one after the other."""
        return cls(
            {name: np.concatenate([p.columns[name] for p in parts]) for name in parts[0].columns},
            {name: np.concatenate([p.arrays[name] for p in parts]) for name in parts[0].arrays},
        )

    def to_json(self) -> Json:
        """Form in the job record, which restores every bit."""
        return {
            "columns": [[name, pack(values)] for name, values in self.columns.items()],
            "arrays": [[name, pack(values)] for name, values in self.arrays.items()],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> StudyTable:
        """Inverse of :meth:`to_json`."""
        return cls(
            {name: unpack(values) for name, values in record["columns"]},
            {name: unpack(values) for name, values in record["arrays"]},
        )


S = TypeVar("S", bound=Study)


@dataclass(frozen=True)
class Needs:
    """What a study asks of an anchor, of memory and of the result."""

    history: int  # frames
    horizon: int  # future frames
    latents: int  # of an anchor that are held at a time, about: of its views, and predicted
    result_bytes: int  # that an anchor adds, about: columns, arrays, representations
    set_horizon: int = 0  # future frames that a stored set has at least, for the blocks before them


class StudyMeasurement(ABC, Generic[S]):
    """One study of one checkpoint on its anchors; part by part, then as a whole.

    What it asks of a checkpoint and of anchors is known before there are any.
    """

    # The field of the study that an anchor's share of memory and of the result grows with.
    repeated = "draws"

    def __init__(self, bench: Bench, study: S) -> None:
        self._bench = bench
        self._study = study
        self._history = bench.model.card.history

    @classmethod
    @abstractmethod
    def needs(cls, study: S, card: ModelCard) -> Needs:
        """Return what it asks of anchors."""

    @classmethod
    def check(cls, spec: StudySpec, card: ModelCard) -> None:
        """Reject what the checkpoint cannot be asked; fields are the request's.

        Raises InvalidArgument: The checkpoint's frames take no such views.
        """
        plan = replace(views_of(spec.study), draws=1)  # type: ignore[arg-type]
        kind = spec.study.kind
        if plan.specs:
            check_drawing(card.history, card.image_size**2, f"{kind}.shifts[0]")
        frame = torch.zeros(1, 1, 3, card.image_size, card.image_size)
        try:
            for view in distinct_views(plan):
                if not isinstance(plan.specs[view.spec_index], GivenViews):
                    draw_views(frame, [Draw(0, plan, view)])
        except InvalidArgument as error:
            field = f"{kind}.{error.field.replace('specs', 'shifts', 1)}"
            raise InvalidArgument(field, error.description, reason=error.reason) from error

    @abstractmethod
    def measure(self, start: int, stop: int) -> StudyTable:
        """The part of anchors [start, stop)."""

    def rollout(self, histories: Tensor, blocks: Tensor) -> Tensor:
        """As :meth:`Bench.rollout`; FailedPrecondition where a prediction is not finite."""
        latents = self._bench.rollout(histories, blocks)
        check_predictions(latents)
        return latents

    def conclude(self, table: StudyTable) -> StudyTable:
        """The whole study from its joined parts: the rows, as they are."""
        return table


def views_each(study: DriftStudy | PlannerStudy | GeometryStudy) -> int:
    """Distinct views of one anchor."""
    return len(distinct_views(views_of(study)))


def rollout_latents(study: DriftStudy | GeometryStudy, card: ModelCard) -> int:
    """Latents of one anchor, its views and what is predicted from them, about."""
    return (1 + views_each(study)) * (card.history + 4 * study.horizon)


def view_columns(
    anchor_ids: np.ndarray, plan: PerturbationSet, views: Sequence[View]
) -> dict[str, np.ndarray]:
    """The columns that say which anchor and which view a row is of, anchor-major."""
    n = len(anchor_ids)
    points = zip(plan.specs, grids(plan.specs), strict=True)
    levels = [spec.severity if level is None else level for spec, (_, level) in points]
    severities = [levels[view.spec_index] for view in views]
    return {
        "anchor": np.repeat(anchor_ids, len(views)),
        "shift": np.tile(np.array([view.spec_index for view in views], np.int64), n),
        "severity": np.tile(np.array(severities, np.float64), n),
        "draw": np.tile(np.array([view.draw for view in views], np.int64), n),
    }
