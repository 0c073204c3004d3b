"""Law: what ``test_bad_requests`` says of a pair holds for a planner's methods and streams."""

from __future__ import annotations

import grpc
import pytest
import wire
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from bad_pairs import Case
from bad_plans import (
    BAD_NEXT,
    BAD_PAIRED,
    BAD_POOLS,
    BAD_STARTS,
    GOOD_POOL,
    GOOD_PROPOSAL,
    paired,
    pool,
    start,
)
from test_bad_requests import check
from waiting import GENEROUS_SECONDS


@pytest.fixture(scope="module")
def stub(channel: grpc.Channel) -> DiagnosticServiceStub:
    return DiagnosticServiceStub(channel)


@pytest.mark.parametrize("case", BAD_POOLS, ids=lambda case: case.id)
def test_certify_pool(stub: DiagnosticServiceStub, case: Case) -> None:
    refused = wire.refusal(lambda: stub.CertifyPool(case.request, timeout=GENEROUS_SECONDS))
    check(refused, case.code, case.field)


@pytest.mark.parametrize("case", BAD_PAIRED, ids=lambda case: case.id)
def test_plan_paired(stub: DiagnosticServiceStub, case: Case) -> None:
    refused = wire.refusal(lambda: stub.PlanPaired(case.request, timeout=GENEROUS_SECONDS))
    check(refused, case.code, case.field)


@pytest.mark.parametrize("case", BAD_STARTS, ids=lambda case: case.id)
def test_the_start_of_a_plan(stub: DiagnosticServiceStub, case: Case) -> None:
    refused = wire.refusal(lambda: list(stub.Plan(iter([case.request]), timeout=GENEROUS_SECONDS)))
    check(refused, case.code, case.field and f"start.{case.field}")


@pytest.mark.parametrize("case", BAD_NEXT, ids=lambda case: case.id)
def test_the_messages_after_it(stub: DiagnosticServiceStub, case: Case) -> None:
    """A good pool before the bad message is still answered."""
    answers: list[pb.PlanResponse] = []
    requests = iter([start(), GOOD_POOL, case.request])
    refused = wire.refusal(lambda: answers.extend(stub.Plan(requests, timeout=GENEROUS_SECONDS)))
    check(refused, case.code, case.field)


@pytest.mark.parametrize("first", [GOOD_POOL, pb.PlanRequest()], ids=["pool", "nothing"])
def test_a_plan_without_a_start(stub: DiagnosticServiceStub, first: pb.PlanRequest) -> None:
    refused = wire.refusal(lambda: list(stub.Plan(iter([first]), timeout=GENEROUS_SECONDS)))
    check(refused, "INVALID_ARGUMENT", "start")


def test_the_tables_are_large() -> None:
    for table in (BAD_POOLS, BAD_PAIRED, BAD_STARTS, BAD_NEXT):
        assert len({case.id for case in table}) == len(table) >= 15


def test_good_requests_are_answered(stub: DiagnosticServiceStub) -> None:
    """Or every refusal above would prove nothing."""
    assert len(stub.CertifyPool(pool(), timeout=GENEROUS_SECONDS).views) == 1
    assert len(stub.PlanPaired(paired(), timeout=GENEROUS_SECONDS).views) == 1
    answers = list(stub.Plan(iter([start(), GOOD_POOL, GOOD_PROPOSAL]), timeout=GENEROUS_SECONDS))
    kinds = [answer.WhichOneof("message") for answer in answers]
    assert kinds == ["started", "certificate", "certificate"]
