"""Law: a planner's bad request is its own fault on the wire, and names its field."""

from __future__ import annotations

import given_wire
import grpc
import planning_wire as planning
import pytest
import wire
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from bad_given import BAD_GIVEN, BAD_GIVEN_STREAMS
from bad_pairs import Case
from bad_pools import BAD_POOLS, BAD_STREAMS
from test_bad_requests import check
from waiting import GENEROUS_SECONDS


@pytest.mark.parametrize("case", [*BAD_POOLS, *BAD_GIVEN], ids=lambda case: case.id)
def test_unary_calls(channel: grpc.Channel, case: Case) -> None:
    method = getattr(DiagnosticServiceStub(channel), case.id.partition("-")[0])
    check(
        wire.refusal(lambda: method(case.request, timeout=GENEROUS_SECONDS)), case.code, case.field
    )


@pytest.mark.parametrize("case", [*BAD_STREAMS, *BAD_GIVEN_STREAMS], ids=lambda case: case.id)
def test_streams(channel: grpc.Channel, case: Case) -> None:
    """The first refusal ends the stream; what came before it is answered."""
    answers = []
    stream = DiagnosticServiceStub(channel).Plan(iter(case.request), timeout=GENEROUS_SECONDS)
    check(wire.refusal(lambda: answers.extend(stream)), case.code, case.field)
    assert len(answers) == max(0, len(case.request) - 1)


def test_good_ones_are_still_answered(channel: grpc.Channel) -> None:
    stub = DiagnosticServiceStub(channel)
    assert len(stub.CertifyPool(planning.certify(), timeout=GENEROUS_SECONDS).views) == 4
    assert len(stub.PlanPaired(planning.paired(), timeout=GENEROUS_SECONDS).views) == 4
    messages = iter([planning.start(), planning.proposed()])
    assert len(list(stub.Plan(messages, timeout=GENEROUS_SECONDS))) == 2
    assert len(stub.ComparePair(given_wire.pair(), timeout=GENEROUS_SECONDS).results) == 2
    assert len(stub.CertifyPool(given_wire.certify(), timeout=GENEROUS_SECONDS).views) == 4
    assert len(stub.PlanPaired(given_wire.paired(), timeout=GENEROUS_SECONDS).views) == 4
    assert len(list(stub.Plan(iter(given_wire.session()), timeout=GENEROUS_SECONDS))) == 4
