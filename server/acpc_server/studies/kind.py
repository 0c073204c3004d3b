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
    StudyRows,
)

from acpc_server.encoding import (
    AnchorJobKind,
    AnchorSetSource,
    check_latents,
    receipt_from_json,
)
from acpc_server.engine import held_rows, require_mode
from acpc_server.errors import InvalidArgument, below
from acpc_server.jobs import Json, Step
from acpc_server.models import ModelCard
from acpc_server.scheduling import RequestContext
from acpc_server.studies.drift import DriftMeasurement
from acpc_server.studies.geometry import GeometryMeasurement
from acpc_server.studies.measurement import Bench, StudyMeasurement, StudyTable
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
        kind.check_request(spec, card)
        held, needed = "the views of one anchor", kind.latents_each(study, card)
        with below(study.kind):
            check_latents(self.engine, model, spec.numeric_mode, needed, kind.repeated, held)
            found = spec.anchors.count * kind.result_bytes(study, card)
            if found > RESULT_BYTES:
                wrong = f"the result would hold {found} bytes, over {RESULT_BYTES}; ask for fewer "
                raise InvalidArgument(kind.repeated, f"{wrong}of them, or for fewer anchors")
            kind.check(study, card, spec)
        history, horizon = kind.window(study, card)
        if isinstance(spec.anchors, AnchorSetSource):
            horizon = max(horizon, kind.set_horizon(study))
        self.readers.check(spec.anchors, card, history=history, horizon=horizon, exact=False)

    def metadata(self, spec: StudySpec, life: Mapping[str, Any]) -> StudyMetadata:
        """Return the request and the progress of a study."""
        return StudyMetadata(request=spec.request(), **life)

    def answer(self, spec: StudySpec, result: Mapping[str, Any]) -> StudyRows:
        """The rows of a study that succeeded, from its record."""
        table = StudyTable.from_json(result)
        receipt = receipt_from_json(result["receipt"])
        return StudyRows(spec.checkpoint, table.columns, table.arrays, receipt, spec.request())

    def count_steps(self, spec: StudySpec) -> int:
        """One step to read the anchors, one per shard."""
        return 1 + len(spec.shards())

    def run(self, spec: StudySpec, stamp: str, step: Step, context: RequestContext) -> Json:
        """Every step of a study, in order; see :class:`~acpc_server.jobs.JobKind`."""
        opened = step("reading anchors", lambda: self._open(spec, stamp, context))

        def measure(rows: tuple[int, int]) -> Json:
            measurement, card = self._measurement(spec, opened), self._card(spec)
            size = held_rows(card, measurement.latents_each(spec.study, card))
            runs = [(start, min(start + size, rows[1])) for start in range(*rows, size)]
            return StudyTable.join([measurement.measure(*run, context) for run in runs]).to_json()

        measured = step.each(f"measuring {spec.study.kind}", measure, spec.shards())
        parts = [StudyTable.from_json(part) for part in measured]
        measurement = self._measurement(spec, opened)
        table = measurement.conclude(StudyTable.join(parts))
        read = self._card(spec).weights_read
        receipt = spec.receipt(opened["digest"], self.engine.device, read)
        return {**table.to_json(), "receipt": receipt.to_dict()}

    def _card(self, spec: StudySpec) -> ModelCard:
        return self.loaded(spec.checkpoint).model.card

    def _open(self, spec: StudySpec, stamp: str, context: RequestContext) -> Json:
        history, horizon = _measures(spec).window(spec.study, self._card(spec))
        with context.phase("read"):
            _, identity = self.readers.open(
                spec.anchors, stamp, history=history, horizon=horizon, check=context.check
            )
        # Rejects anchors that the study cannot use.
        self._measurement(spec, identity)
        return identity

    def _measurement(self, spec: StudySpec, opened: Json) -> StudyMeasurement[Any]:
        history, horizon = _measures(spec).window(spec.study, self._card(spec))
        anchors = self.readers.reopen(spec.anchors, opened, history=history, horizon=horizon)
        bench = Bench(self.engine, self.loaded(spec.checkpoint), anchors, spec.numeric_mode)
        return _measures(spec)(bench, spec.study)
