"""Certificates with confidence over the wire: both clients, limits of time, other callers."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import planning_wire as planning
import wire
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from acpc_client import (
    AcpcClient,
    AsyncAcpcClient,
    CoverageGoal,
    CoverageOutcome,
    CoverageStop,
    GaussianBlur,
    GaussianNoise,
    PoolCertificate,
)
from acpc_command import acpc_command
from planning_wire import ELITES
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS

GOAL = CoverageGoal(coverage=0.9, max_draws=200)
# As many predicted steps as a call may ask for, hundreds of times those of the other calls.
MANY_DRAWS = pb.CoverageGoal(coverage=0.98, max_draws=2048, one_look=True)
MANY_CANDIDATES = 170


def question(**changed: object) -> dict[str, Any]:
    return {
        "history": wire.frames(wire.HISTORY),
        "goal": wire.frames(1, seed=8)[0],
        "past_blocks": wire.blocks(wire.HISTORY - 1),
        "perturbations": [GaussianNoise(1e-5), GaussianNoise(0.5), GaussianBlur(5)],
        "seed": 3,
        "elite_count": ELITES,
        "coverage_goal": GOAL,
        **changed,
    }


def test_both_clients_are_told_the_same(client: AcpcClient, server: ServerProcess) -> None:
    asked = question(candidates=planning.pool(), timeout=GENEROUS_SECONDS)
    answer = client.certify_pool("lewm", **asked)

    async def ask() -> PoolCertificate:
        async with AsyncAcpcClient(server.address) as other:
            return await other.certify_pool("lewm", **asked)

    assert asyncio.run(ask()).coverage == answer.coverage
    stable, unstable, blur = answer.coverage
    assert stable.top1.outcome is CoverageOutcome.HOLDS
    assert unstable.elite.outcome is CoverageOutcome.FAILS
    assert blur.top1.stop is CoverageStop.EXACT
    assert answer.certified_severities[0].confident_top1 == 1e-5
    assert len(answer.views) == 3
    assert answer.receipt.parameters["coverage_goal"]["seed"] == 3


def test_a_session_tells_of_its_pools_together(client: AcpcClient, server: ServerProcess) -> None:
    asked = question(perturbations=GaussianNoise(1e-5))
    pools = [planning.pool(seed=seed) for seed in range(2)]
    with client.plan("lewm", message_timeout=GENEROUS_SECONDS, **asked) as session:
        limit = session.receipt.parameters["coverage_goal"]["time_limit"]
        assert 0 < limit <= 0.7 * GENEROUS_SECONDS
        answers = [session.certify(pool) for pool in pools]
        mean = np.zeros((planning.HORIZON, wire.WIDTH), np.float32)
        sampled = session.certify_proposal(mean, mean + 1, candidates=16, seed=2).certificate

    async def ask() -> list[PoolCertificate]:
        async with (
            AsyncAcpcClient(server.address) as other,
            other.plan("lewm", message_timeout=GENEROUS_SECONDS, **asked) as session,
        ):
            return [await session.certify(pool) for pool in pools]

    assert [a.coverage for a in asyncio.run(ask())] == [a.coverage for a in answers]
    for number, answer in enumerate([*answers, sampled], 1):
        (statement,) = answer.coverage
        assert statement.step.pool == number
        assert statement.step.top1 is CoverageOutcome.HOLDS
        assert statement.first_draw == 200 * (number - 1)


def test_a_limit_of_time_ends_in_an_answer(client: AcpcClient) -> None:
    goal = CoverageGoal(max_draws=1365, one_look=True, time_limit=0.05)
    answer = client.certify_pool(
        "lewm", candidates=planning.pool(), timeout=GENEROUS_SECONDS, **question(coverage_goal=goal)
    )
    noise = answer.coverage[:2]
    assert {statement.top1.stop for statement in noise} == {CoverageStop.DEADLINE}
    assert all(s.top1.outcome is CoverageOutcome.UNDECIDED for s in noise)
    assert all("no time for more draws" in statement.top1.sentence for statement in noise)
    assert answer.coverage[2].top1.stop is CoverageStop.EXACT
    assert answer.views[0].top1.certified  # which needs no draws


def test_others_are_answered_while_one_draws(channel: grpc.Channel) -> None:
    stub = DiagnosticServiceStub(channel)
    candidates = wire.tensor(planning.pool(MANY_CANDIDATES))
    long = stub.CertifyPool.future(
        planning.certify(candidates=candidates, coverage_goal=MANY_DRAWS), timeout=GENEROUS_SECONDS
    )
    try:
        for _ in range(3):
            stub.CertifyPool(planning.certify(), timeout=GENEROUS_SECONDS)
        assert not long.done()
    finally:
        long.cancel()
    assert long.cancelled()
    # What a call that was cancelled has asked for is not drawn: the next has the device.
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(stub.CertifyPool, planning.certify(), timeout=GENEROUS_SECONDS)
        assert again.result(GENEROUS_SECONDS).views


def test_the_command_gates_on_statements(server: ServerProcess, tmp_path: Path) -> None:
    arrays = {name: question()[name] for name in ("history", "goal", "past_blocks")}
    np.savez(tmp_path / "pool.npz", **arrays, candidates=planning.pool())
    certify = acpc_command(
        "certify", "--input", tmp_path / "pool.npz", "--target", server.address, "--checkpoint",
        "lewm", "--elites", ELITES, "--coverage", 0.9, "--max-draws", 200, "--require",
        "confident-elite",
    )  # fmt: skip
    stable = certify("--shift", "gaussian_noise:0.00001")
    assert "at least 90 % of all draws of gaussian_noise:1e-05 leave the winner" in stable.output
    assert "largest severity of gaussian_noise with confidence: winner 1e-05" in stable.output
    unstable = certify("--shift", "gaussian_noise:0.5", code=3)
    assert "fewer than 90 % of all draws" in unstable.output
