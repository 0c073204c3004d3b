"""Common parts of the studies: a checkpoint, its anchors, and rollouts of many histories."""

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
    NumericMode,
    PerturbationSet,
    PlannerStudy,
    Study,
    grids,
    released_future_frames,
)
from torch import Tensor

from acpc_server.data import Anchors
from acpc_server.encoding import (
    NO_VIEWS,
    AnchorEncoder,
    Draw,
    View,
    check_predictions,
    distinct_views,
    draw_views,
)
from acpc_server.engine import CachedCheckpoint, DeviceClient
from acpc_server.errors import InvalidArgument
from acpc_server.jobs import Json, pack, unpack
from acpc_server.models import ModelCard
from acpc_server.perturb import check_drawing
from acpc_server.scheduling import RequestContext
from acpc_server.studies.spec import StudySpec, views_of

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class StudyTable:
    """A part of a study, or all of it.

    Attributes:
        columns: Arrays of one axis and one length, in the order of the contract.
        arrays: What does not fit a column; the first axis grows from part to part.
    """

    columns: Arrays
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
class Bench:
    """A study's means of measurement.

    Attributes:
        anchors: What it measures on; their history may be longer than the study's.
    """

    engine: DeviceClient
    checkpoint: CachedCheckpoint
    anchors: Anchors
    mode: NumericMode

    def blocks(self, history: int, horizon: int) -> np.ndarray:
        """Recorded blocks from the newest ``history`` frames on, (n, h + H - 1, block width)."""
        now = self.anchors.history
        return self.anchors.action_blocks[:, now - history : now + horizon - 1]

    def window_blocks(self, history: int, horizon: int) -> np.ndarray:
        """Recorded blocks that leave every frame of a window, (n, h + F, block width).

        Those of the windows that a dataset's anchors were drawn from; of a stored set, which has
        them, as many as the released code's windows have.
        """
        if self.anchors.window_blocks is not None:
            return self.anchors.window_blocks
        first, wanted = self.anchors.history - history, history + released_future_frames(horizon)
        return self.anchors.action_blocks[:, first : first + wanted]

    def encoder(
        self, history: int, future: Sequence[int], views: PerturbationSet = NO_VIEWS
    ) -> AnchorEncoder:
        """Encoder of the newest ``history`` frames, their views and some future frames."""
        model, now = self.checkpoint.model, self.anchors.history
        kept = [*range(now - history, now), *(now + step for step in future)]
        return AnchorEncoder(self.engine, model, self.mode, self.anchors, kept, views)

    def rollout(self, histories: Tensor, blocks: Tensor, context: RequestContext) -> Tensor:
        """Finite predictions (..., H, dim) of histories (..., h, dim) under blocks (..., h+H-1, w).

        Leading axes must broadcast. Raises FailedPrecondition: A prediction is not finite.
        """
        shapes = histories.shape[:-2], blocks.shape[:-2]
        leading = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
        latents = self.engine.rollout(
            self.checkpoint.model,
            histories.expand(*leading, -1, -1).reshape(-1, *histories.shape[-2:]),
            blocks.expand(*leading, -1, -1).reshape(-1, *blocks.shape[-2:]),
            context,
            self.mode,
        )
        check_predictions(latents)
        return latents.reshape(*leading, *latents.shape[1:])


class StudyMeasurement(ABC, Generic[S]):
    """One study of one checkpoint on its anchors; part by part, then as a whole.

    What it asks of a checkpoint and of anchors is known before there are any: class methods.

    Attributes:
        repeated: Field of the study that an anchor's share of memory and of the result grows with.
    """

    repeated = "draws"

    def __init__(self, bench: Bench, study: S) -> None:
        self._bench = bench
        self._study = study
        self._history = bench.checkpoint.model.card.history

    @classmethod
    def window(cls, study: S, card: ModelCard) -> tuple[int, int]:
        """Frames of history, and future frames, that an anchor must have."""
        return card.history, study.horizon  # type: ignore[union-attr]

    @classmethod
    def set_horizon(cls, study: S) -> int:
        """Future frames that a stored set must have at least for the blocks before them."""
        return 0

    @classmethod
    def latents_each(cls, study: S, card: ModelCard) -> int:
        """Latents of one anchor that are held at a time, about: of its views, and predicted."""
        return (1 + views_each(study)) * (card.history + 4 * study.horizon)  # type: ignore

    @classmethod
    @abstractmethod
    def result_bytes(cls, study: S, card: ModelCard) -> int:
        """Estimate the bytes an anchor adds to the result: columns, arrays, representations."""

    @classmethod
    def check_request(cls, spec: StudySpec, card: ModelCard) -> None:
        """Rejects an arithmetic or a checkpoint that the study cannot take."""

    @classmethod
    def check(cls, study: S, card: ModelCard, spec: StudySpec) -> None:
        """Rejects what depends on the checkpoint or on the anchors; fields are the study's.

        Raises InvalidArgument: The checkpoint's frames take no such views.
        """
        plan = replace(views_of(study), draws=1)  # type: ignore[arg-type]
        if plan.specs:
            check_drawing(card.history, card.image_size**2, "shifts[0]")
        frame = torch.zeros(1, 1, 3, card.image_size, card.image_size)
        try:
            for view in distinct_views(plan):
                if not isinstance(plan.specs[view.spec_index], GivenViews):
                    draw_views(frame, [Draw(0, plan, view)])
        except InvalidArgument as error:
            field = error.field.replace("specs", "shifts", 1)
            raise InvalidArgument(field, error.description, reason=error.reason) from error

    @abstractmethod
    def measure(self, start: int, stop: int, context: RequestContext) -> StudyTable:
        """The part of anchors [start, stop)."""

    def conclude(self, table: StudyTable) -> StudyTable:
        """The whole study from its joined parts: the rows, as they are."""
        return table


def views_each(study: DriftStudy | PlannerStudy | GeometryStudy) -> int:
    """Distinct views of one anchor."""
    return len(distinct_views(views_of(study)))


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
