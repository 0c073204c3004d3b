"""The kind of job that measures the rows of one study on one checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from acpc.contract import (
    DriftStudy,
    GeometryStudy,
    GivenViews,
    NumericMode,
    PlannerStudy,
    SensitivityStudy,
    StudyMetadata,
    StudyRows,
)

from acpc_server.encoding import (
    AnchorJobKind,
    AnchorSetSource,
    Draw,
    check_latents,
    distinct_views,
    draw_views,
    receipt_from_json,
    receipt_to_json,
)
from acpc_server.engine import held_rows, require_mode
from acpc_server.errors import InvalidArgument
from acpc_server.jobs import Json, Step
from acpc_server.models import ModelCard, check_history
from acpc_server.scheduling import RequestContext
from acpc_server.studies.drift import DriftMeasurement
from acpc_server.studies.geometry import GeometryMeasurement
from acpc_server.studies.measurement import Bench, Measurement, Table
from acpc_server.studies.planner import PlannerMeasurement
from acpc_server.studies.sensitivity import SensitivityMeasurement
from acpc_server.studies.spec import (
    StudySpec,
    latents_each,
    result_bytes,
    set_horizon,
    views_of,
    window,
)

# A result travels in one message, of which the default limit is 64 MiB.
RESULT_BYTES = 2**25


class StudyJobKind(AnchorJobKind):
    """Measures the rows of one study, shard by shard."""

    name = "run_study"
    spec_type = StudySpec

    def check(self, spec: StudySpec, tenant: str = "") -> None:
        """Reject a spec of a tenant that cannot work, before it is queued."""
        model = self.loaded(spec.checkpoint).model
        require_mode(spec.numeric_mode, self.engine.device, model)
        if isinstance(spec.study, SensitivityStudy) and spec.numeric_mode is not NumericMode.FP32:
            raise InvalidArgument(
                "numeric_mode",
                f"found {spec.numeric_mode!s}, wanted fp32; a sensitivity study's derivatives are "
                "computed in float32 alone",
            )
        card = model.card
        if isinstance(spec.study, SensitivityStudy) and card.proprio_dim:
            raise InvalidArgument(
                "sensitivity",
                "a sensitivity study takes no checkpoint whose frames come with proprioception",
            )
        try:
            check_latents(
                self.engine,
                model,
                spec.numeric_mode,
                latents_each(spec.study, card),
                "probes" if isinstance(spec.study, SensitivityStudy) else "draws",
                "the views of one anchor",
            )
            _check_size(spec, card)
            _check_study(spec, card)
        except InvalidArgument as error:
            raise error.below(spec.study.kind) from error
        history, horizon = window(spec.study, card)
        if isinstance(spec.anchors, AnchorSetSource):
            horizon = max(horizon, set_horizon(spec.study))
        readers = self.readers.of(tenant)
        readers.check(spec.anchors, card, history=history, horizon=horizon, exact=False)

    def metadata(self, spec: StudySpec, life: Mapping[str, Any]) -> StudyMetadata:
        """What is measured and how far it is."""
        return StudyMetadata(request=spec.request(), **life)

    def answer(self, spec: StudySpec, result: Mapping[str, Any]) -> StudyRows:
        """The rows of a study that succeeded, from its record."""
        table = Table.from_json(result)
        receipt = receipt_from_json(result["receipt"])
        return StudyRows(spec.checkpoint, table.columns, table.arrays, receipt, spec.request())

    def count_steps(self, spec: StudySpec) -> int:
        """One step to read the anchors, one per shard."""
        return 1 + len(spec.shards())

    def run(self, spec: StudySpec, stamp: str, step: Step, context: RequestContext) -> Json:
        """Every step of a study, in order; see :class:`~acpc_server.jobs.JobKind`."""
        opened = step("reading anchors", lambda: self._open(spec, stamp, context))
        measure = partial(self._shard, spec, opened, context)
        measured = step.each(f"measuring {spec.study.kind}", measure, spec.shards())
        parts = [Table.from_json(part) for part in measured]
        measurement = self._measurement(spec, opened, context.tenant)
        table = measurement.conclude(Table.join(parts))
        return {
            **table.to_json(),
            "receipt": receipt_to_json(spec.receipt(opened["digest"], self.engine.device)),
        }

    def _open(self, spec: StudySpec, stamp: str, context: RequestContext) -> Json:
        history, horizon = window(spec.study, self.loaded(spec.checkpoint).model.card)
        _, identity = self.readers.of(context.tenant).open(
            spec.anchors, stamp, history=history, horizon=horizon, check=context.check
        )
        self._measurement(
            spec, identity, context.tenant
        )  # rejects anchors that the study cannot use
        return identity

    def _shard(
        self, spec: StudySpec, opened: Json, context: RequestContext, rows: tuple[int, int]
    ) -> Json:
        """The rows of one shard of anchors."""
        start, stop = rows
        measurement = self._measurement(spec, opened, context.tenant)
        card = self.loaded(spec.checkpoint).model.card
        size = held_rows(card, latents_each(spec.study, card))
        runs = [(first, min(first + size, stop)) for first in range(start, stop, size)]
        return Table.join([measurement.measure(*run, context) for run in runs]).to_json()

    def _measurement(self, spec: StudySpec, opened: Json, tenant: str) -> Measurement[Any]:
        checkpoint = self.loaded(spec.checkpoint)
        history, horizon = window(spec.study, checkpoint.model.card)
        readers = self.readers.of(tenant)
        anchors = readers.reopen(spec.anchors, opened, history=history, horizon=horizon)
        bench = Bench(self.engine, checkpoint, anchors, spec.numeric_mode)
        match spec.study:
            case DriftStudy():
                return DriftMeasurement(bench, spec.study)
            case PlannerStudy():
                return PlannerMeasurement(bench, spec.study)
            case GeometryStudy():
                return GeometryMeasurement(bench, spec.study)
            case SensitivityStudy():
                return SensitivityMeasurement(bench, spec.study)


def _check_size(spec: StudySpec, card: ModelCard) -> None:
    study = spec.study
    found = spec.anchors.count * result_bytes(study, card)
    if found > RESULT_BYTES:
        raise InvalidArgument(
            "probes" if isinstance(study, SensitivityStudy) else "draws",
            f"the result would hold {found} bytes, over {RESULT_BYTES}; ask for fewer of "
            "them, or for fewer anchors",
        )


def _check_study(spec: StudySpec, card: ModelCard) -> None:
    """What depends on the checkpoint or on the anchors; names fields below the study."""
    study = spec.study
    if not isinstance(study, SensitivityStudy):
        frame = torch.zeros(1, 3, card.image_size, card.image_size)
        try:
            plan = replace(views_of(study), draws=1)
            for view in distinct_views(plan):
                if not isinstance(plan.specs[view.spec_index], GivenViews):
                    draw_views(frame[None], [Draw(0, plan, view)])
        except InvalidArgument as error:
            field = error.field.replace("specs", "shifts", 1)
            raise InvalidArgument(field, error.description, reason=error.reason) from error
    if isinstance(study, PlannerStudy):
        check_history(card, study.history)
    if isinstance(study, DriftStudy) and spec.anchors.count < study.groups:
        raise InvalidArgument(
            "groups",
            f"{study.groups} groups need as many trajectories, and {spec.anchors.count} anchors "
            "come from no more than one each; ask for fewer groups or for more anchors",
        )
