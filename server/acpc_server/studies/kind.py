"""The kind of job that measures the rows of one study on one checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acpc.contract import (
    DriftStudy,
    GeometryStudy,
    PlannerStudy,
    SensitivityStudy,
    Study,
    StudyMetadata,
    StudyRequest,
    StudyRows,
)

from acpc_server.encoding import (
    AnchorJobKind,
    AnchorSetSource,
    Bench,
    check_latents,
    receipt_from_json,
)
from acpc_server.engine import require_mode
from acpc_server.errors import InvalidArgument, below
from acpc_server.jobs import Json, Step
from acpc_server.scheduling import RequestContext
from acpc_server.studies.drift import DriftMeasurement
from acpc_server.studies.geometry import GeometryMeasurement
from acpc_server.studies.measurement import Needs, StudyMeasurement, StudyTable
from acpc_server.studies.planner import PlannerMeasurement
from acpc_server.studies.sensitivity import SensitivityMeasurement
from acpc_server.studies.spec import StudySpec

# A result travels in one message, of which the default limit is 64 MiB.
RESULT_BYTES = 2**25
MEASUREMENTS: Mapping[type[Study], type[StudyMeasurement[Any]]] = {
    DriftStudy: DriftMeasurement,
    PlannerStudy: PlannerMeasurement,
    GeometryStudy: GeometryMeasurement,
    SensitivityStudy: SensitivityMeasurement,
}


def _measures(spec: StudySpec) -> type[StudyMeasurement[Any]]:
    return MEASUREMENTS[type(spec.study)]


class StudyJobKind(AnchorJobKind):
    """Measures the rows of one study, shard by shard."""

    name = "run_study"
    spec_type = StudySpec

    def check(self, spec: StudySpec) -> None:
        """Reject a spec that cannot work, before it is queued."""
        model, study, kind = self.loaded(spec.checkpoint).model, spec.study, _measures(spec)
        card = model.card
        require_mode(spec.numeric_mode, self.engine.device, model)
        kind.check(spec, card)
        needs, held = kind.needs(study, card), "the views of one anchor"
        with below(study.kind):
            asked = self.engine, model, spec.numeric_mode
            check_latents(*asked, needs.latents, kind.repeated, held)
            found = spec.anchors.count * needs.result_bytes
            if found > RESULT_BYTES:
                wrong = f"the result would hold {found} bytes, over {RESULT_BYTES}; ask for fewer "
                raise InvalidArgument(kind.repeated, f"{wrong}of them, or for fewer anchors")
        horizon = needs.horizon
        if isinstance(spec.anchors, AnchorSetSource):
            horizon = max(horizon, needs.set_horizon)
        self.readers.check(spec.anchors, card, history=needs.history, horizon=horizon, exact=False)

    def metadata(self, spec: StudySpec, life: Mapping[str, Any]) -> StudyMetadata:
        """Return the request and the progress of a study."""
        return StudyMetadata(request=spec.asked(StudyRequest), **life)

    def answer(self, spec: StudySpec, result: Mapping[str, Any]) -> StudyRows:
        """The rows of a study that succeeded, from its record."""
        table = StudyTable.from_json(result)
        receipt = receipt_from_json(result["receipt"])
        asked = spec.asked(StudyRequest)
        return StudyRows(spec.checkpoint, table.columns, table.arrays, receipt, asked)

    def count_steps(self, spec: StudySpec) -> int:
        """One step to read the anchors, one per shard."""
        return 1 + len(spec.shards())

    def run(self, spec: StudySpec, stamp: str, step: Step, context: RequestContext) -> Json:
        """Every step of a study, in order; see :class:`~acpc_server.jobs.JobKind`."""
        opened = step("reading anchors", lambda: self._open(spec, stamp, context))

        def measure(rows: tuple[int, int]) -> Json:
            bench = self._bench(spec, opened, context)
            measurement = _measures(spec)(bench, spec.study)
            runs = bench.pieces(*rows, self._needs(spec).latents)
            return StudyTable.join([measurement.measure(*run) for run in runs]).to_json()

        measured = step.each(f"measuring {spec.study.kind}", measure, spec.shards())
        parts = [StudyTable.from_json(part) for part in measured]
        bench = self._bench(spec, opened, context)
        table = _measures(spec)(bench, spec.study).conclude(StudyTable.join(parts))
        read = bench.model.card.weights_read
        receipt = spec.receipt(opened["digest"], self.engine.device, read)
        return {**table.to_json(), "receipt": receipt.to_dict()}

    def _needs(self, spec: StudySpec) -> Needs:
        return _measures(spec).needs(spec.study, self.loaded(spec.checkpoint).model.card)

    def _open(self, spec: StudySpec, stamp: str, context: RequestContext) -> Json:
        needs = self._needs(spec)
        history, horizon = needs.history, needs.horizon
        with context.phase("read"):
            _, identity = self.readers.open(
                spec.anchors, stamp, history=history, horizon=horizon, check=context.check
            )
        # Rejects anchors that the study cannot use.
        _measures(spec)(self._bench(spec, identity, context), spec.study)
        return identity

    def _bench(self, spec: StudySpec, opened: Json, context: RequestContext) -> Bench:
        needs, loaded = self._needs(spec), self.loaded(spec.checkpoint)
        anchors = self.readers.reopen(
            spec.anchors, opened, history=needs.history, horizon=needs.horizon
        )
        return Bench(self.engine, loaded, anchors, spec.numeric_mode, context)
