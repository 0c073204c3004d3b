"""A planning session that moves answers as new sessions do, one at each moment."""

import asyncio
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import wire
from acpc.arrays import NDArray
from acpc.contract import GaussianNoise
from acpc_client import AcpcClient, AsyncAcpcClient, PoolCertificate, Receipt
from acpc_client.errors import ArgumentError, InvalidArgument
from served_world import write_world
from server_process import ServerProcess

FRAMES = wire.frames(5)
GOALS = wire.frames(2, seed=5)
PAST = wire.blocks(4)
POOL = wire.blocks(24 * 3, seed=11).reshape(24, 3, -1)
QUESTION: dict[str, Any] = {
    "perturbations": [GaussianNoise(0.0005), GaussianNoise(0.02)],
    "draws": 3,
    "seed": 7,
    "anchor": 3,
    "elite_count": 5,
}
# Where each moment's history begins and ends, how much of the one before it keeps, its goal.
MOMENTS = [(0, 1, 0, 0), (0, 2, 1, 0), (0, 3, 2, 0), (1, 4, 2, 0), (2, 5, 2, 1), (4, 5, 0, 1)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that remembers no latents: what a session has, it holds."""
    world = write_world(tmp_path_factory.mktemp("moving"))
    with world.server(latent_cache_mib=0) as process:
        yield process
        assert process.bugs() == []


def past(begin: int, end: int) -> NDArray[np.float32] | None:
    return PAST[begin : end - 1] if end - begin > 1 else None


def fresh(client: AcpcClient, begin: int, end: int, goal: int) -> tuple[Receipt, PoolCertificate]:
    given = {**QUESTION, "past_blocks": past(begin, end)}
    with client.plan("lewm", FRAMES[begin:end], GOALS[goal], **given) as session:
        return session.receipt, session.certify(POOL)


def check_same(found: PoolCertificate, wanted: PoolCertificate) -> None:
    """The same decisions, and numbers up to the order in which rows of a batch are summed."""
    assert found.clean_elites == wanted.clean_elites
    np.testing.assert_allclose(found.clean_costs, wanted.clean_costs, rtol=1e-5)
    for one, other in zip(found.views, wanted.views, strict=True):
        assert one.perturbed_winner == other.perturbed_winner
        assert one.top1.certified == other.top1.certified
        # Of small distances between latents, whose last bits weigh more here than in costs.
        np.testing.assert_allclose(one.bounds, other.bounds, rtol=1e-3, atol=2e-4)
    assert asdict(found.receipt) == asdict(wanted.receipt)


def moved(step: int) -> dict[str, Any]:
    """Arguments that move a session from the moment before to one."""
    begin, end, keep, goal = MOMENTS[step]
    changed = goal != MOMENTS[step - 1][3]
    return {
        "history": FRAMES[begin + keep : end],
        "keep": keep,
        "past_blocks": past(begin, end),
        "goal": GOALS[goal] if changed else None,
    }


def test_both_clients_move_a_session_to_what_new_ones_answer(server: ServerProcess) -> None:
    with AcpcClient(server.address) as client:
        wanted = [fresh(client, begin, end, goal) for begin, end, _, goal in MOMENTS]
        with client.plan("lewm", FRAMES[:1], GOALS[0], **QUESTION) as session:
            for step, (receipt, certificate) in enumerate(wanted):
                if step:
                    assert asdict(session.move(**moved(step))) == asdict(receipt)
                assert asdict(session.receipt) == asdict(receipt)
                check_same(session.certify(POOL), certificate)

    async def ask() -> list[PoolCertificate]:
        async with (
            AsyncAcpcClient(server.address) as client,
            client.plan("lewm", FRAMES[:1], GOALS[0], **QUESTION) as session,
        ):
            answers = [await session.certify(POOL)]
            for step in range(1, len(MOMENTS)):
                await session.move(**moved(step))
                answers.append(await session.certify(POOL))
            return answers

    for found, (_, certificate) in zip(asyncio.run(ask()), wanted, strict=True):
        check_same(found, certificate)


def test_a_callers_own_views_move_along(server: ServerProcess) -> None:
    views = np.stack([255 - FRAMES[:2], FRAMES[:2]])
    with AcpcClient(server.address) as client:
        with client.plan("lewm", FRAMES[1:2], GOALS[0], views=views[:, 1:]) as session:
            wanted = session.certify(POOL)
        given = {"views": views, "past_blocks": PAST[:1]}
        with client.plan("lewm", FRAMES[:2], GOALS[0], **given) as session:
            session.move(FRAMES[1:2], views=views[:, 1:])
            check_same(session.certify(POOL), wanted)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"history": FRAMES[1:2], "keep": 2}, "frame.keep"),
        ({"history": FRAMES[1:2], "keep": 1}, "frame.past_blocks.shape"),
        ({"history": FRAMES[:4], "past_blocks": PAST[:3]}, "frame.history.shape"),
        ({"history": wire.frames(1, height=20)}, "frame.history.shape"),
        ({"history": FRAMES[:1], "views": FRAMES[None, :1]}, "frame.explicit_views"),
        ({"history": FRAMES[:1], "goal": np.zeros(3, np.float32)}, "frame.goal.latent.shape"),
    ],
)
def test_a_moment_that_does_not_follow_names_its_field(
    given: dict[str, Any], field: str, server: ServerProcess
) -> None:
    with (
        AcpcClient(server.address) as client,
        client.plan("lewm", FRAMES[:1], GOALS[0], **QUESTION) as session,
        pytest.raises(InvalidArgument) as raised,
    ):
        session.move(**given)
    assert [violation.field for violation in raised.value.violations] == [field]


def test_what_cannot_be_sent_leaves_the_session_open(server: ServerProcess) -> None:
    with (
        AcpcClient(server.address) as client,
        client.plan("lewm", FRAMES[:1], GOALS[0], **QUESTION) as session,
    ):
        with pytest.raises(ArgumentError):
            session.move(FRAMES[0])
        session.move(FRAMES[1:2])
        assert session.certify(POOL).views
