"""Studies out of the wire's messages, the paper's protocol where they are silent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from acpc.v1 import diagnostic_service_pb2
from acpc.v1 import study_service_pb2 as pb

from acpc_server.errors import InvalidArgument
from acpc_server.interactive import check_budget
from acpc_server.numerics import Reduction
from acpc_server.perturb import AnyPerturbation
from acpc_server.rpc import codec
from acpc_server.rpc.planner import RETURNS, read_budget, read_returns
from acpc_server.studies import AnyStudy, DriftStudy, GeometryStudy, PlannerStudy, SensitivityStudy

MAX_SHIFTS = 256
# Views of one anchor; their frames are there at once.
MAX_VIEWS = 1000
MAX_HORIZON = 256
MAX_GROUPS = 1000
MAX_PROBES = 1000
MAX_STEP = 1.0
MAX_GOAL = 256
GEOMETRY_ANCHORS = 128
ONE_PER_EPISODE = ("drift", "planner")
REDUCTIONS: dict[int, Reduction] = {
    diagnostic_service_pb2.COST_REDUCTION_UNSPECIFIED: "mean",
    diagnostic_service_pb2.COST_REDUCTION_SUM: "sum",
    diagnostic_service_pb2.COST_REDUCTION_MEAN: "mean",
}


def with_study_defaults(request: pb.RunStudyRequest) -> pb.RunStudyRequest:
    """A copy whose dataset has the defaults that differ from study to study."""
    filled = pb.RunStudyRequest()
    filled.CopyFrom(request)
    if filled.WhichOneof("anchors") == "dataset":
        kind = filled.WhichOneof("study")
        if not filled.dataset.HasField("one_per_episode"):
            filled.dataset.one_per_episode = kind in ONE_PER_EPISODE
        if kind == "geometry" and not filled.dataset.HasField("count"):
            filled.dataset.count = GEOMETRY_ANCHORS
    return filled


def read_study(request: pb.RunStudyRequest) -> AnyStudy:
    """The study of a request.

    Raises:
        InvalidArgument: No study, or a value outside its range; names the field.
        FailedPrecondition: A plug-in perturbation that cannot be loaded.
    """
    kind = request.WhichOneof("study")
    readers: dict[str, Callable[[Any], AnyStudy]] = {
        "drift": read_drift,
        "planner": read_planner,
        "geometry": read_geometry,
        "sensitivity": read_sensitivity,
    }
    if kind is None:
        raise InvalidArgument("drift", f"choose a study: {', '.join(readers)}")
    try:
        return readers[kind](getattr(request, kind))
    except InvalidArgument as error:
        raise error.below(kind) from error


def read_drift(message: pb.DriftStudy) -> DriftStudy:
    """A drift study; names fields below it."""
    study = DriftStudy(**_shifted(message), **_given(message, "horizon", "groups"))
    _require_range("horizon", study.horizon, 2, MAX_HORIZON)
    _require_range("groups", study.groups, 2, MAX_GROUPS)
    return study


def read_planner(message: pb.PlannerStudy) -> PlannerStudy:
    """A planner study; names fields below it."""
    budget = read_budget(message.budget)
    check_budget(budget)
    reduction = REDUCTIONS.get(message.cost_reduction)
    if reduction is None:
        raise InvalidArgument("cost_reduction", f"unknown reduction {message.cost_reduction}")
    study = PlannerStudy(
        budget=budget,
        reduction=reduction,
        returns=read_returns(message.returns),
        **{"goal_offset": budget.horizon, **_given(message, "goal_offset")},
        **_shifted(message),
        **_given(message, "sampling_seed", "history"),
    )
    _require_range("history", study.history, 1, MAX_HORIZON)
    _require_range("goal_offset", study.goal_offset, 1, MAX_GOAL)
    return study


def read_geometry(message: pb.GeometryStudy) -> GeometryStudy:
    """A geometry study; names fields below it."""
    study = GeometryStudy(**_shifted(message), **_given(message, "horizon"))
    _require_range("horizon", study.horizon, 1, MAX_HORIZON)
    return study


def read_sensitivity(message: pb.SensitivityStudy) -> SensitivityStudy:
    """A sensitivity study; names fields below it."""
    study = SensitivityStudy(**_given(message, "probes", "seed", "horizon", "step"))
    _require_range("probes", study.probes, 1, MAX_PROBES)
    _require_range("horizon", study.horizon, 1, MAX_HORIZON)
    if not (math.isfinite(study.step) and 0 < study.step <= MAX_STEP):
        raise InvalidArgument("step", f"{study.step} is not in (0, {MAX_STEP:g}]")
    return study


def write_study(study: AnyStudy) -> dict[str, Any]:
    """The ``study`` field of the request that gives this study."""
    fields: dict[str, Any] = study.model_dump(exclude={"kind", "shifts", "reduction", "returns"})
    if not isinstance(study, SensitivityStudy):
        fields["shifts"] = [codec.write_spec(shift) for shift in study.shifts]
    if isinstance(study, PlannerStudy):
        fields["cost_reduction"] = _last(REDUCTIONS, study.reduction)
        fields["returns"] = _last(RETURNS, study.returns)
    return {study.kind: fields}


def _last(values: dict[int, Any], wanted: str) -> int:
    """The named value of an enum whose unspecified one means the same."""
    return max(wire for wire, value in values.items() if value == wanted)


def _shifted(message: pb.DriftStudy | pb.PlannerStudy | pb.GeometryStudy) -> dict[str, Any]:
    """Shifts, draws and seed, where they are given."""
    if len(message.shifts) > MAX_SHIFTS:
        raise InvalidArgument("shifts", f"{len(message.shifts)} shifts are over {MAX_SHIFTS}")
    given = _given(message, "draws", "seed")
    _require_range("draws", given.get("draws", 1), 1, MAX_VIEWS // max(1, len(message.shifts)))
    shifts: list[AnyPerturbation] = [
        codec.read_spec(spec, f"shifts[{index}]") for index, spec in enumerate(message.shifts)
    ]
    return {**given, **({"shifts": tuple(shifts)} if shifts else {})}


def _given(message: Any, *fields: str) -> dict[str, Any]:  # noqa: ANN401 - any study
    return {field: getattr(message, field) for field in fields if message.HasField(field)}


def _require_range(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidArgument(field, f"{value} is not in {least} to {most}")
