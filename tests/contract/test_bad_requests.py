"""Law: a bad request is the caller's fault on the wire, names its field, and harms nobody else."""

from collections.abc import Callable, Iterable, Iterator

import given_wire
import grpc
import planning_wire as planning
import pytest
import wire
from acpc.contract import NumericMode
from acpc.v1 import diagnostic_service_pb2
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from acpc.v1.study_service_pb2_grpc import StudyServiceStub
from bad_calls import BAD_CALLS, BAD_ORDERS, BAD_STUDIES
from bad_cases import BAD_SESSIONS, BAD_UNARY, STUDIES, study
from declared import Case
from methods import path_of
from waiting import GENEROUS_SECONDS

BAD = [*BAD_UNARY, *BAD_CALLS, *BAD_STUDIES]
PAIRS = [case for case in BAD_UNARY if case.method == "DiagnosticService.ComparePair"]


def call(channel: grpc.Channel, case: Case) -> tuple[wire.Refusal | None, int]:
    messages = case.request if isinstance(case.request, list) else [case.request]
    sent = (message.SerializeToString() for message in messages)
    stream = channel.stream_stream(path_of(case.method))
    answers: list[bytes] = []
    refused = wire.refusal(lambda: answers.extend(stream(sent, timeout=GENEROUS_SECONDS)))
    return refused, len(answers)


def check(refused: wire.Refusal | None, code: str, field: str) -> None:
    assert refused is not None, "the request was answered"
    assert (refused.code, refused.fields) == (code, (field,) if field else ())
    assert refused.domain == "acpc.v1"
    assert refused.reason
    assert refused.reason == refused.reason.upper()
    assert refused.request_id
    assert refused.message
    assert not field or refused.message.startswith(f"{field}: ")


def faults(cases: Iterable[Case], look: Callable[[Case], object]) -> dict[str, str]:
    """What is wrong about the cases that fail, by id: a test for each takes twice as long."""
    found = {}
    for case in cases:
        try:
            look(case)
        except AssertionError as error:
            found[case.id] = str(error)
    return found


@pytest.mark.parametrize("method", sorted({case.method for case in BAD}))
def test_calls(channel: grpc.Channel, method: str) -> None:
    cases = (case for case in BAD if case.method == method)
    assert faults(cases, lambda case: check(call(channel, case)[0], case.code, case.field)) == {}


def test_sessions(channel: grpc.Channel) -> None:
    """The first refusal ends the stream; what came before it is answered."""

    def look(case: Case) -> None:
        refused, answered = call(channel, case)
        check(refused, case.code, case.field)
        assert answered == max(0, len(case.request) - 1)

    assert faults([*BAD_SESSIONS, *BAD_ORDERS], look) == {}


def test_a_stream_answers_bad_pairs_in_place(channel: grpc.Channel) -> None:
    """Every bad pair gets in the stream what it gets alone, below ``pair``; good ones between."""
    kind = diagnostic_service_pb2.ComparePairsRequest
    good = kind(pair_id="good", pair=wire.pair())

    def requests() -> Iterator[diagnostic_service_pb2.ComparePairsRequest]:
        yield good
        yield from (kind(pair_id=case.id, pair=case.request) for case in PAIRS)
        yield good

    stream = DiagnosticServiceStub(channel).ComparePairs(requests(), timeout=GENEROUS_SECONDS)
    first, *answers, last = list(stream)
    assert [answer.pair_id for answer in answers] == [case.id for case in PAIRS]
    assert first.response.results == last.response.results
    assert len(last.response.results) == 1
    for case, answer in zip(PAIRS, answers, strict=True):
        assert answer.WhichOneof("outcome") == "error", case.id
        check(wire.Refusal.of_status(answer.error), case.code, case.field and f"pair.{case.field}")


def test_the_tables_are_large_and_their_names_their_own() -> None:
    ids = [case.id for case in (*BAD, *BAD_SESSIONS, *BAD_ORDERS)]
    assert len(set(ids)) == len(ids) >= 1700


@pytest.mark.parametrize("mode", ["bf16", "fp64"])
def test_the_arithmetic_of_a_sensitivity_study_is_named(channel: grpc.Channel, mode: str) -> None:
    """Float64 has digits enough: the refusal does not say that any are missing."""
    asked = study("sensitivity", numeric_mode=NumericMode[mode.upper()])
    refused, _ = call(channel, Case("", "StudyService.RunStudy", asked))
    assert refused.message == (
        f"numeric_mode: found {mode}, wanted fp32; a sensitivity study's derivatives are computed "
        "in float32 alone"
    )


@pytest.mark.parametrize("kind", STUDIES)
def test_the_good_study_behind_the_bad_ones_is_queued(channel: grpc.Channel, kind: str) -> None:
    fields = {"horizon": 4} if kind != "planner" else {}
    asked = study(kind, fields, request_id=f"good-{kind}")
    stub = StudyServiceStub(channel)
    operation = stub.RunStudy(asked, timeout=GENEROUS_SECONDS)
    assert operation.name.startswith("operations/")
    assert stub.RunStudy(asked, timeout=GENEROUS_SECONDS).name == operation.name
    asked.checkpoint.name = "pldm"
    refused, _ = call(channel, Case("", "StudyService.RunStudy", asked))
    assert refused.code == "ALREADY_EXISTS"


def test_good_ones_are_still_answered(channel: grpc.Channel) -> None:
    stub = DiagnosticServiceStub(channel)
    (result,) = stub.ComparePair(wire.pair(), timeout=GENEROUS_SECONDS).results
    assert result.acpc > 0
    assert len(stub.CertifyPool(planning.certify(), timeout=GENEROUS_SECONDS).views) == 4
    assert len(stub.PlanPaired(planning.paired(), timeout=GENEROUS_SECONDS).views) == 4
    messages = iter([planning.start(), planning.proposed()])
    assert len(list(stub.Plan(messages, timeout=GENEROUS_SECONDS))) == 2
    assert len(stub.ComparePair(given_wire.pair(), timeout=GENEROUS_SECONDS).results) == 2
    assert len(stub.CertifyPool(given_wire.certify(), timeout=GENEROUS_SECONDS).views) == 4
    assert len(stub.PlanPaired(given_wire.paired(), timeout=GENEROUS_SECONDS).views) == 4
    assert len(list(stub.Plan(iter(given_wire.session()), timeout=GENEROUS_SECONDS))) == 4
