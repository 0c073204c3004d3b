"""The hook in the public library's CEM and iCEM solvers, against a server on a socket."""

import json
from typing import Any

import grpc
import numpy as np
import pytest
import torch
from acpc_client.errors import (
    ArgumentError,
    InvalidArgument,
    SessionClosed,
)
from acpc_client.sync.session import PlanSession
from acpc_lab.integrations import CemCertificates
from cem_solvers import Sessions, only, rising, rows, solver
from client_messages import status
from waiting import GENEROUS_SECONDS

BAD = status(grpc.StatusCode.INVALID_ARGUMENT, "candidates: width 2, wanted 10")
pytestmark = pytest.mark.usefixtures("release")


def test_every_iteration_of_every_environment_is_certified(session: Sessions) -> None:
    pools: list[torch.Tensor] = []

    def noting(info: dict[str, Any], pool: torch.Tensor) -> torch.Tensor:
        pools.append(pool)
        return rising(info, pool)

    hook = CemCertificates(session)
    outputs = solver(hook, noting, batch_size=2).solve(rows(3))
    seeds = [message.start.perturbations.seed for message in session.server.requests["Plan"]]
    assert sorted(seeds) == [0, 1, 2]
    assert all(session.server.goodbyes.acquire(timeout=GENEROUS_SECONDS) for _ in range(3))
    sent = [message.pool for message in session.server.requests["PlanPool"]]
    assert [pool.iteration for pool in sent] == [0, 0, 1, 1, 2, 2, 0, 1, 2]
    second = {pool.candidates.data for pool in sent[2:4]}
    assert second == {pool.numpy().tobytes() for pool in pools[1]}
    for env in range(3):
        assert hook.certified(env)
        assert hook.first_uncertified(env) is None
        assert [item.step for item in hook.iterations[env]] == [0, 1, 2]
        assert all(item.same_selection and item.cost_gap == 0 for item in hook.iterations[env])
        assert all(item.seconds > 0 for item in hook.iterations[env])
    recorded = outputs["callbacks"]["acpc"]
    assert [len(batch) for batch in recorded] == [3, 3]
    assert recorded[0][2]["certified"] == [True, True]
    assert recorded[1][0]["margin"] == [0.5]
    assert json.loads(json.dumps(recorded)) == recorded


def test_one_denied_view_denies_the_iteration(session: Sessions) -> None:
    hook = CemCertificates(session)

    def denied_from_the_second(info: dict[str, Any], pool: torch.Tensor) -> torch.Tensor:
        if hook.iterations.get(0):
            session.server.uncertified = {(0, 0)}
        return rising(info, pool)

    solver(hook, denied_from_the_second).solve(rows(1))
    assert [item.certified for item in hook.iterations[0]] == [True, False, False]
    assert hook.first_uncertified() == 1
    assert hook.iterations[0][1].margin == -0.25
    assert not hook.certified()


@pytest.mark.parametrize("select", ["top1", "elite"])
def test_a_certificate_of_another_selection_counts_for_nothing(
    select: Any, session: Sessions
) -> None:
    hook = CemCertificates(session, select=select)
    solver(hook, lambda info, pool: rising(info, pool).flip(1)).solve(rows(1))
    for item in hook.iterations[0]:
        assert item.certificate.views[0].elite.certified
        assert not item.same_selection
        assert not item.certified
        assert item.cost_gap == 1.0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"candidates": np.zeros((0, 4, 2, 10))}, "candidates: found .0, 4, 2, 10., wanted"),
        ({"costs": np.zeros((2, 3))}, "costs: found .2, 3., wanted .2, 4."),
        ({"costs": np.zeros((1, 4))}, "costs: found .1, 4., wanted .2, 4."),
        ({"topk_inds": np.zeros((1, 2), int)}, "topk_inds: found .1, 2., wanted .2, k."),
        ({"topk_inds": np.full((2, 2), 4)}, "topk_inds: wanted indices of 4 candidates"),
    ],
)
def test_arrays_of_an_iteration_must_fit_each_other(
    wrong: dict[str, Any], words: str, session: Sessions
) -> None:
    hook = CemCertificates(session, on_error="deny")
    hook.reset()
    hook.start_batch()
    fitting = {"candidates": np.zeros((2, 4, 2, 10)), "costs": np.zeros((2, 4))}
    asked: Any = {**fitting, "topk_inds": np.zeros((2, 2), int), **wrong}
    with pytest.raises(ArgumentError, match=words):
        hook(step=0, **asked)
    assert not session.server.requests


@pytest.mark.parametrize("what", ["select", "on_error"])
def test_a_word_that_it_does_not_know_is_refused(what: str, session: Sessions) -> None:
    options: Any = {what: "perhaps"}
    with pytest.raises(ArgumentError, match=f"{what}: found 'perhaps', wanted"):
        CemCertificates(session, **options)


def test_an_elite_count_that_is_not_the_solvers_is_refused(session: Sessions) -> None:
    with pytest.raises(ArgumentError, match="found 2, wanted the solver's topk 4"):
        solver(CemCertificates(session, on_error="deny"), topk=4).solve(rows(1))


def test_a_round_whose_candidates_cannot_be_sent_is_denied_and_the_planner_goes_on(
    session: Sessions,
) -> None:
    """A single elite has no spread: from the second round on the solver's candidates are NaN."""
    options = {"topk": 1, "n_steps": 3}
    hook = CemCertificates(lambda env: session(env, elite_count=1), on_error="deny")
    with pytest.warns(UserWarning, match="degrees of freedom"):
        solver(hook, **options).solve(rows(1))
    first, *later = hook.iterations[0]
    assert first.certified
    assert [item.certified for item in later] == [False, False]
    assert all(isinstance(item.error, ArgumentError) for item in later)
    assert "candidates" in str(later[0].error)
    assert len(session.server.requests["PlanPool"]) == 1
    raising = CemCertificates(lambda env: session(env, elite_count=1))
    with pytest.warns(UserWarning), pytest.raises(ArgumentError, match="candidates"):
        solver(raising, **options).solve(rows(1))


def test_a_copy_of_a_candidate_is_the_same_choice(session: Sessions) -> None:
    """The solver may take another copy than the server does."""
    hook = CemCertificates(session)
    hook.reset()
    hook.start_batch()
    pool = np.arange(5.0)[[0, 1, 1, 2, 0]][None, :, None, None] * np.ones((1, 5, 3, 2))
    for elites, costs in (([4, 2], [1.0, 2, 2, 3, 0]), ([2, 3], [1.0, 2, 0, 3, 4])):
        hook(step=0, candidates=pool, costs=np.array([costs]), topk_inds=np.array([elites]))
    hook.end_solve()
    assert [item.same_selection for item in hook.iterations[0]] == [True, False]


def test_an_error_can_deny_the_rest_of_one_environment(session: Sessions) -> None:
    session.server.refusals["PlanPool"].append(BAD)
    hook = CemCertificates(session, on_error="deny")
    solver(hook).solve(rows(2))
    assert [item.certified for item in hook.iterations[0]] == [False] * 3
    assert all(isinstance(item.error, InvalidArgument) for item in hook.iterations[0])
    assert hook.first_uncertified(0) == 0
    assert hook.certified(1)
    assert [batch[0]["margin"] for batch in hook.history] == [[None], [0.5]]


@pytest.mark.parametrize("kind", ["CEM", "ICEM"])
def test_a_solver_that_replans_some_environments_asks_for_theirs(
    kind: Any, session: Sessions
) -> None:
    kept = 2 * (kind == "ICEM")
    hook, seen = CemCertificates(lambda env: session(env, kept_elites=kept)), []

    def noting(info: dict[str, Any], pool: torch.Tensor) -> torch.Tensor:
        seen.append(sorted(info))
        return rising(info, pool)

    attached = hook.attach(solver(hook, noting, environments=3, n_steps=1, kind=kind))
    attached.solve(rows(3))
    attached(only(rows(3), [2, 1]))
    assert sorted(hook.iterations) == [1, 2]
    assert hook.rows[2]["id"] == 42
    attached.solve({**only(rows(3), [2]), "environment": torch.tensor([2])})
    assert list(hook.iterations) == [2]
    seeds = [message.start.perturbations.seed for message in session.server.requests["Plan"]]
    assert seeds == [0, 1, 2, 2, 1, 2]
    assert {tuple(keys) for keys in seen} == {("id", "pixels")}, "the model sees what it did before"


def test_rows_that_are_nobodys_are_told_in_words(session: Sessions) -> None:
    hook = CemCertificates(session, on_error="deny")
    attached = hook.attach(solver(hook, environments=2, n_steps=1))
    with pytest.raises(ArgumentError, match=r"1 of 2 environments.*info\['environment'\]"):
        attached.solve(rows(1))
    attached.solve(rows(2))
    another = {**rows(1), "id": np.array([[77]])}
    with pytest.raises(ArgumentError, match="not told which"):
        attached.solve(another)
    assert len(session.server.requests["Plan"]) == 2

    alone = CemCertificates(session)
    loop = solver(alone, n_steps=1)
    loop.solve(rows(2))
    with pytest.raises(ArgumentError, match=r"2 environments before and for 1 now.*attach"):
        loop.solve(only(rows(2), [1]))


def test_an_error_inside_solve_leaves_no_session_open(session: Sessions) -> None:
    opened: list[PlanSession] = []

    def kept(env: int) -> PlanSession:
        opened.append(session(env))
        return opened[-1]

    hook = CemCertificates(kept)

    def failing(info: dict[str, Any], pool: torch.Tensor) -> torch.Tensor:
        if hook.iterations:
            raise RuntimeError("the world model has failed")
        return rising(info, pool)

    with pytest.raises(RuntimeError, match="world model"):
        hook.attach(solver(hook, failing)).solve(rows(1))
    session.server.refusals["PlanPool"].append(BAD)
    with pytest.raises(InvalidArgument):
        solver(hook := CemCertificates(kept), batch_size=2).solve(rows(2))
    assert len(opened) == 3
    for left in opened:
        with pytest.raises(SessionClosed):
            left.certify(np.zeros((6, 3, 2), np.float32))
