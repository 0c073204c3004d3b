"""Law: a bad request is the caller's fault on the wire, names its field, and harms nobody else."""

from __future__ import annotations

import grpc
import pytest
import wire
from acpc.v1 import (
    anchor_service_pb2_grpc,
    checkpoint_service_pb2_grpc,
    dataset_service_pb2_grpc,
    diagnostic_service_pb2,
    diagnostic_service_pb2_grpc,
    scoring_service_pb2_grpc,
    study_service_pb2_grpc,
)
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from bad_jobs import BAD_CALLS, MethodCase
from bad_pairs import BAD_PAIRS, Case
from google.longrunning import operations_pb2_grpc
from waiting import GENEROUS_SECONDS

# What a client takes without being told otherwise.
TRAILER_BYTES = 8192
STUBS = {
    "ScoringService": scoring_service_pb2_grpc.ScoringServiceStub,
    "CheckpointService": checkpoint_service_pb2_grpc.CheckpointServiceStub,
    "DatasetService": dataset_service_pb2_grpc.DatasetServiceStub,
    "DiagnosticService": diagnostic_service_pb2_grpc.DiagnosticServiceStub,
    "AnchorService": anchor_service_pb2_grpc.AnchorServiceStub,
    "StudyService": study_service_pb2_grpc.StudyServiceStub,
    "Operations": operations_pb2_grpc.OperationsStub,
}


def call(channel: grpc.Channel, method: str, request: object) -> wire.Refusal | None:
    """The refusal of a unary or server-streaming method named ``Service.Method``."""
    service, name = method.split(".")
    bound = getattr(STUBS[service](channel), name)

    def run() -> None:
        answer = bound(request, timeout=GENEROUS_SECONDS)
        if isinstance(answer, grpc.Call):
            list(answer)

    return wire.refusal(run)


def check(refused: wire.Refusal | None, code: str, field: str) -> None:
    assert refused is not None, "the request was answered"
    assert (refused.code, refused.fields) == (code, (field,) if field else ())
    assert refused.domain == "acpc.v1"
    assert refused.reason
    assert refused.reason == refused.reason.upper()
    assert refused.request_id
    assert refused.message
    assert not field or refused.message.startswith(f"{field}: ")


@pytest.mark.parametrize("case", BAD_PAIRS, ids=lambda case: case.id)
def test_compare_pair(channel: grpc.Channel, case: Case) -> None:
    check(call(channel, "DiagnosticService.ComparePair", case.request), case.code, case.field)


@pytest.mark.parametrize("case", BAD_CALLS, ids=lambda case: case.id)
def test_other_methods(channel: grpc.Channel, case: MethodCase) -> None:
    check(call(channel, case.method, case.request), case.code, case.field)


def test_a_stream_answers_bad_pairs_in_place(channel: grpc.Channel) -> None:
    """Every bad pair gets in the stream what it gets alone, below ``pair``; good ones between."""
    good = diagnostic_service_pb2.ComparePairsRequest(pair_id="good", pair=wire.pair())
    requests = [good]
    for case in BAD_PAIRS:
        requests.append(
            diagnostic_service_pb2.ComparePairsRequest(pair_id=case.id, pair=case.request)
        )
    requests.append(good)
    stream = DiagnosticServiceStub(channel).ComparePairs(iter(requests), timeout=GENEROUS_SECONDS)
    first, *answers, last = list(stream)
    assert [answer.pair_id for answer in answers] == [case.id for case in BAD_PAIRS]
    assert first.response.results == last.response.results
    assert len(last.response.results) == 1
    for case, answer in zip(BAD_PAIRS, answers, strict=True):
        assert answer.WhichOneof("outcome") == "error", case.id
        check(wire.Refusal.of_status(answer.error), case.code, case.field and f"pair.{case.field}")


def test_the_tables_are_large_and_their_names_their_own() -> None:
    ids = [case.id for case in (*BAD_PAIRS, *BAD_CALLS)]
    assert len(set(ids)) == len(ids) >= 150


def test_a_refusal_fits_the_trailers_of_any_client(channel: grpc.Channel) -> None:
    """Callers' own text is quoted in messages; it must not grow a status no client can read."""
    largest = 0
    stub = DiagnosticServiceStub(channel)
    for case in BAD_PAIRS:
        with pytest.raises(grpc.RpcError) as caught:
            stub.ComparePair(case.request, timeout=GENEROUS_SECONDS)
        trailers = caught.value.trailing_metadata()
        size = sum(len(key) + len(value) + 32 for key, value in trailers)
        largest = max(largest, size + 3 * len(caught.value.details().encode()))
    assert 1000 < largest < TRAILER_BYTES


def test_good_requests_are_still_answered(channel: grpc.Channel) -> None:
    answer = DiagnosticServiceStub(channel).ComparePair(wire.pair(), timeout=GENEROUS_SECONDS)
    assert len(answer.results) == 1
    assert answer.results[0].acpc > 0
