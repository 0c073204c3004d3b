"""CertifyPool, Plan and PlanPaired over the wire."""

import grpc
import numpy as np
import planning_wire as planning
import pytest
import wire
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from planning_wire import CANDIDATES, HORIZON, array
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS


@pytest.fixture(scope="module")
def stub(channel: grpc.Channel) -> DiagnosticServiceStub:
    return DiagnosticServiceStub(channel)


def plan(stub: DiagnosticServiceStub, *messages: pb.PlanRequest) -> list[pb.PlanResponse]:
    return list(stub.Plan(iter(messages), timeout=GENEROUS_SECONDS))


def test_a_pool_that_cannot_be_certified_costs_nothing(
    stub: DiagnosticServiceStub, server: ServerProcess
) -> None:
    """What does not fit is refused before a frame is encoded."""

    def device_calls() -> float:
        lines = server.metrics().splitlines()
        counts = [line for line in lines if line.startswith("acpc_compute_seconds_count")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in counts)

    fresh = wire.tensor(wire.frames(3, seed=77))
    stub.CertifyPool(planning.certify(history=fresh), timeout=GENEROUS_SECONDS)
    before = device_calls()
    assert before > 0
    unseen = wire.tensor(wire.frames(3, seed=78))
    wide = wire.tensor(np.zeros((4, 3, 99), np.float32))
    for calls in (
        lambda: stub.CertifyPool(planning.certify(history=unseen, candidates=wide)),
        lambda: stub.CertifyPool(planning.certify(history=unseen, elite_count=CANDIDATES)),
        lambda: stub.PlanPaired(planning.paired(history=unseen, budget=pb.CemBudget(elites=99))),
    ):
        refused = wire.refusal(calls)
        assert refused.code == "INVALID_ARGUMENT"
    assert device_calls() == before


def test_every_option_is_taken(stub: DiagnosticServiceStub) -> None:
    views = np.stack([wire.frames(1), wire.frames(1, seed=5)])
    request = planning.certify(
        history=wire.tensor(wire.frames(1)),
        past_blocks=None,
        goal=pb.Goal(latent=wire.tensor(np.zeros(16, np.float32))),
        explicit_views=wire.tensor(views),
        elite_count=0,
        cost_reduction=pb.COST_REDUCTION_MEAN,
        endpoint_tolerance=0.01,
        weights=[0.5, 0.25, 0.25],
    )
    answer = stub.CertifyPool(request, timeout=GENEROUS_SECONDS)
    assert [(v.spec_index, v.draw) for v in answer.views] == [(0, 0), (0, 1)]
    assert not answer.views[0].HasField("elite")
    assert not answer.clean_gaps.HasField("elite")
    assert not answer.clean_elites
    assert not answer.certified_severities
    bounds = array(answer.views[0].bounds)
    reach = np.sqrt(array(answer.clean_costs) * 16) + np.sqrt(
        array(answer.views[0].perturbed_costs) * 16
    )
    displacement = array(answer.views[0].displacements) + 0.02
    np.testing.assert_allclose(bounds, displacement * (reach + 0.02) / 16, rtol=1e-9)


def test_a_proposal_is_sampled_by_its_seed_alone(stub: DiagnosticServiceStub) -> None:
    """Candidate 0 is the mean; the same seed gives the same pool in any stream and iteration."""
    larger = planning.proposed(2, candidates=CANDIDATES + 5)
    other = planning.proposed(3, seed=7)
    _, *answers = plan(stub, planning.start(), planning.proposed(1), larger, other)
    again = plan(stub, planning.start(), planning.proposed(9))[1]
    first, more, different = (array(answer.certificate.candidates) for answer in answers)
    assert first.shape == (CANDIDATES, HORIZON, wire.WIDTH)
    assert (first[0] == 0.5).all()
    assert np.array_equal(array(again.certificate.candidates), first)
    assert np.array_equal(more[:CANDIDATES], first)
    assert not np.array_equal(different[1:], first[1:])
    assert abs(((more[1:] - 0.5) / 2).mean()) < 0.2
    _, sent_back = plan(stub, planning.start(), planning.explicit(first))
    assert not sent_back.certificate.HasField("candidates"), "the planner has them"
    alone = planning.certify(candidates=wire.tensor(first))
    certified = stub.CertifyPool(alone, timeout=GENEROUS_SECONDS)
    assert certified.receipt == answers[0].certificate.certificate.receipt
