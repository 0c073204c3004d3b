"""Law: a value outside the range that the contract declares is refused by its field's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import planning_wire as planning
import pytest
import wire
from acpc import contract
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1.perturbation_pb2 import PerturbationSpec
from bad_pairs import INVALID
from bad_studies import STUDIES, request
from out_of_range import out_of_range
from test_bad_requests import call, check
from test_requests_declared import RECORDS
from waiting import GENEROUS_SECONDS

RECORD_OF = {
    record.message_type.DESCRIPTOR.full_name: record
    for record in (*RECORDS, contract.CoverageGoal, contract.Objective)
}
OBJECTIVE = {"control_weights": [1.0], "terms": [{}]}
# One of each kind that has a number.
SHIFTS = [
    PerturbationSpec(**{kind: fields})
    for kind, fields in {
        "gaussian_noise": {"sigma": 0.1}, "gaussian_blur": {"kernel_size": 5},
        "resize": {"scale": 0.5}, "brightness": {"change": 0.1}, "contrast": {"change": 0.1},
        "color_jitter": {"strength": 0.1}, "jpeg": {"quality": 50}, "occlusion": {"size": 0.2},
        "random_shift": {"pixels": 2}, "defocus_blur": {"radius": 2.0},
        "motion_blur": {"length": 3.0}, "shadow": {"strength": 0.5}, "gamma": {"exponent": 2.0},
    }.items()
]  # fmt: skip
CHOICES: dict[str, Any] = {"evidence": {}, "thresholds": {}, "until_decided": {}, "protocol": {}}
GOOD: dict[str, Any] = {
    "ScoringService.ScoreCheckpoint": [wire.score(**CHOICES)],
    "StudyService.RunStudy": [request(study) for study in STUDIES],
    "DiagnosticService.ComparePair": [wire.pair(perturbations=wire.several(*SHIFTS))],
    "DiagnosticService.CertifyPool": [planning.certify(coverage_goal={}, objective=OBJECTIVE)],
    "DiagnosticService.PlanPaired": [planning.paired(budget={}, objective=OBJECTIVE)],
}


def cases() -> Iterator[Any]:
    for method, requests in GOOD.items():
        for good in requests:
            for name, path, bad in out_of_range(good, RECORD_OF):
                yield pytest.param(method, path, bad, id=f"{method.split('.')[1]}-{name}")


@pytest.mark.parametrize(("method", "path", "bad"), [*cases()])
def test_calls(channel: grpc.Channel, method: str, path: str, bad: Any) -> None:  # noqa: ANN401
    check(call(channel, method, bad), INVALID, path)


def test_sessions(channel: grpc.Channel) -> None:
    plan = channel.stream_stream(
        "/acpc.v1.DiagnosticService/Plan",
        request_serializer=pb.PlanRequest.SerializeToString,
        response_deserializer=pb.PlanResponse.FromString,
    )
    good = planning.start(coverage_goal={}, objective=OBJECTIVE)
    for _, path, bad in out_of_range(good, RECORD_OF):
        refused = wire.refusal(lambda bad=bad: list(plan(iter([bad]), timeout=GENEROUS_SECONDS)))
        check(refused, INVALID, path)
