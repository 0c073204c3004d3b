"""The kind of job that measures the rows of one study on one checkpoint."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial

import torch

from acpc_server.encoding import AnchorReaders, Receipt, device_name, perturbed_views
from acpc_server.engine import CheckpointCache, DeviceEngine, LoadedCheckpoint, NumericMode
from acpc_server.errors import InvalidArgument
from acpc_server.jobs import Json, Step
from acpc_server.models import ModelCard, check_history
from acpc_server.scheduling import RequestContext
from acpc_server.studies.drift import DriftMeasurement
from acpc_server.studies.geometry import GeometryMeasurement
from acpc_server.studies.measurement import Bench, Measurement
from acpc_server.studies.plan import (
    DriftStudy,
    GeometryStudy,
    PlannerStudy,
    SensitivityStudy,
    ShiftedStudy,
    StudyPlan,
)
from acpc_server.studies.planner import PlannerMeasurement
from acpc_server.studies.sensitivity import SensitivityMeasurement
from acpc_server.studies.table import Table

# A result travels in one message, of which the default limit is 64 MiB.
RESULT_BYTES = 2**25


class StudyMeasuring:
    """Accepts studies and computes their steps.

    Args:
        engine: Owner of the device.
        checkpoints: Loaded checkpoints.
        readers: Opens the anchors.
    """

    name = "run_study"
    plan_type = StudyPlan

    def __init__(
        self, engine: DeviceEngine, checkpoints: CheckpointCache, readers: AnchorReaders
    ) -> None:
        self._engine = engine
        self._checkpoints = checkpoints
        self._readers = readers

    def check(self, plan: StudyPlan) -> None:
        """Refuse a plan that cannot work, before it is queued.

        Raises:
            InvalidArgument: A field does not fit the checkpoint or the anchors.
            NotFound, PermissionDenied, FailedPrecondition: The anchors cannot be used.
        """
        _check_mode(plan, self._engine.device)
        card = self._loaded(plan).model.card
        try:
            _check_size(plan, card)
            _check_study(plan, card)
        except InvalidArgument as error:
            raise error.below(plan.study.kind) from error
        history, horizon = plan.study.window(card)
        self._readers.check(plan.anchors, card, history=history, horizon=horizon, exact=False)

    def stamp(self, plan: StudyPlan) -> str:
        """Changes when the data the plan reads is replaced or written to.

        Raises:
            InvalidArgument, NotFound, PermissionDenied, FailedPrecondition: It cannot be found.
        """
        return self._readers.stamp(plan.anchors)

    def count_steps(self, plan: StudyPlan) -> int:
        """One step to read the anchors, one per shard."""
        return 1 + len(plan.shards())

    def run(self, plan: StudyPlan, stamp: str, step: Step, context: RequestContext) -> Json:
        """Every step of a study, in order; see :class:`~acpc_server.diagnostics.JobKind`.

        Raises:
            FailedPrecondition: The anchors are no longer those the job was accepted with, or are
                too few trajectories for the study.
        """
        opened = step("reading anchors", lambda: self._open(plan, stamp, context))
        phase = f"measuring {plan.study.kind}"
        parts = [
            Table.from_json(step(phase, partial(self._part, plan, opened, start, stop, context)))
            for start, stop in plan.shards()
        ]
        table = self._measurement(plan, opened).conclude(Table.join(parts))
        return {**table.to_json(), "receipt": asdict(self._receipt(plan, opened))}

    def _open(self, plan: StudyPlan, stamp: str, context: RequestContext) -> Json:
        history, horizon = plan.study.window(self._loaded(plan).model.card)
        _, identity = self._readers.open(
            plan.anchors, stamp, history=history, horizon=horizon, check=context.check
        )
        self._measurement(plan, identity)  # refuses anchors that the study cannot use
        return identity

    def _part(
        self, plan: StudyPlan, opened: Json, start: int, stop: int, context: RequestContext
    ) -> Json:
        return self._measurement(plan, opened).measure(start, stop, context).to_json()

    def _measurement(self, plan: StudyPlan, opened: Json) -> Measurement:
        checkpoint = self._loaded(plan)
        history, horizon = plan.study.window(checkpoint.model.card)
        anchors = self._readers.reopen(plan.anchors, opened, history=history, horizon=horizon)
        bench = Bench(self._engine, checkpoint, anchors, plan.numeric_mode)
        match plan.study:
            case DriftStudy():
                return DriftMeasurement(bench, plan.study)
            case PlannerStudy():
                return PlannerMeasurement(bench, plan.study)
            case GeometryStudy():
                return GeometryMeasurement(bench, plan.study)
            case SensitivityStudy():
                return SensitivityMeasurement(bench, plan.study)

    def _loaded(self, plan: StudyPlan) -> LoadedCheckpoint:
        named = plan.checkpoint
        return self._checkpoints.get(named.name, named.weights, named.digest)

    def _receipt(self, plan: StudyPlan, opened: Json) -> Receipt:
        return Receipt(
            checkpoint_digest=plan.checkpoint.digest,
            reference_digest="",
            anchors_digest=opened["digest"],
            perturbation_digest=plan.perturbation_digest(),
            parameters_digest=plan.parameters_digest(),
            numeric_mode=plan.numeric_mode,
            device=device_name(self._engine.device),
        )


def _check_size(plan: StudyPlan, card: ModelCard) -> None:
    study = plan.study
    found = plan.anchors.count * study.result_bytes(card)
    if found > RESULT_BYTES:
        raise InvalidArgument(
            "probes" if isinstance(study, SensitivityStudy) else "draws",
            f"the result would hold {found} bytes, over {RESULT_BYTES}; ask for fewer of "
            "them, or for fewer anchors",
        )


def _check_study(plan: StudyPlan, card: ModelCard) -> None:
    """What depends on the checkpoint or on the anchors; names fields below the study."""
    study = plan.study
    if isinstance(study, ShiftedStudy):
        frame = torch.zeros(1, 3, card.image_size, card.image_size)
        try:
            perturbed_views(frame, replace(study.views(), draws=1))
        except InvalidArgument as error:
            field = error.field.replace("specs", "shifts", 1)
            raise InvalidArgument(field, error.description, reason=error.reason) from error
    if isinstance(study, PlannerStudy):
        check_history(card, study.history)
    if isinstance(study, DriftStudy) and plan.anchors.count < study.groups:
        raise InvalidArgument(
            "groups",
            f"{study.groups} groups need as many trajectories, and {plan.anchors.count} anchors "
            "come from no more than one each; ask for fewer groups or for more anchors",
        )


def _check_mode(plan: StudyPlan, device: torch.device) -> None:
    plan.numeric_mode.require(device)
    if isinstance(plan.study, SensitivityStudy) and plan.numeric_mode is not NumericMode.FP32:
        raise InvalidArgument(
            "numeric_mode",
            f"{plan.numeric_mode} leaves a small difference no digits; a sensitivity study runs "
            "in fp32",
        )
