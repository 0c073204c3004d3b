"""Attached again, to several solvers, by several at once, to copies; left; and what cannot be."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from acpc_client.errors import ArgumentError
from acpc_client.sync.session import PlanSession
from acpc_lab.integrations import CemCertificates
from cem_solvers import Opener, only, rising, rows, solver
from client_counterparty import Counterparty
from public_library import public_solver

pytestmark = pytest.mark.usefixtures("release")
OPENERS: dict[str, Opener] = {}  # a copy by pickle finds its opener by name


def opened(env: int) -> PlanSession:
    return OPENERS["here"](env)


@pytest.fixture
def hook(session: Opener) -> CemCertificates:
    OPENERS["here"] = session
    return CemCertificates(opened)


def third(environments: int = 3) -> dict[str, Any]:
    """The last environment alone, by its number."""
    last = environments - 1
    return {**only(rows(environments), [last]), "environment": np.array([last])}


def asked(counterparty: Counterparty) -> list[int]:
    """The environments whose sessions were opened since."""
    return [message.start.perturbations.seed for message in counterparty.requests.pop("Plan", [])]


def test_attached_twice_is_attached_once(hook: CemCertificates, counterparty: Counterparty) -> None:
    attached = hook.attach(hook.attach(solver(hook, environments=3, n_steps=1)))
    attached.solve(third())
    assert asked(counterparty) == [2]
    assert attached.callbacks == [hook]
    assert [item.certified for item in hook.iterations[2]] == [True]


def test_a_callback_of_ones_own_is_let_be(hook: CemCertificates) -> None:
    class Own:
        output_key, history = "own", ("seen",)

        def __call__(self, **_: object) -> None: ...

        def nothing(self) -> None: ...

        reset = start_batch = end_batch = end_solve = nothing

    attached = solver(hook, environments=3, n_steps=1)
    attached.callbacks.append(Own())
    assert hook.attach(attached).solve(third())["callbacks"]["own"] == ("seen",)
    assert hook.certified(2)


def test_two_on_one_solver_are_told_the_same(
    hook: CemCertificates, session: Opener, counterparty: Counterparty
) -> None:
    winner = CemCertificates(session, select="top1", name="winner")
    attached = winner.attach(hook.attach(solver(hook, environments=3, n_steps=1)))
    outputs = attached.solve(third())
    assert asked(counterparty) == [2, 2]
    assert sorted(outputs["callbacks"]) == ["acpc", "winner"]
    assert list(winner.iterations) == list(hook.iterations) == [2]
    hook.detach(attached)
    attached.solve(third())
    assert asked(counterparty) == [2]
    assert list(winner.iterations) == [2]


def test_a_solver_that_is_left_is_as_it_was(
    hook: CemCertificates, counterparty: Counterparty
) -> None:
    plain = solver(hook)
    plain.callbacks.clear()
    kind, before = type(plain), {**vars(plain)}
    left = hook.detach(hook.attach(plain))
    assert (type(left), vars(left)) == (kind, before)
    assert "callbacks" not in left.solve(rows(1))
    assert not counterparty.requests["Plan"]
    assert isinstance(hook.attach(left), kind)
    hook.detach(hook.detach(left))
    assert type(left) is kind


def test_one_serves_two_solvers_by_turns_and_says_so_where_they_overlap(
    hook: CemCertificates, counterparty: Counterparty
) -> None:
    one, two = (hook.attach(solver(hook, environments=3, n_steps=1)) for _ in "ab")
    for attached in (one, two, one):
        attached.solve(third())
        assert asked(counterparty) == [2]
    one.solve(rows(3))
    with pytest.raises(ArgumentError, match="not told which"):
        two.solve(only(rows(3), [1]))  # episodes are known to the solver that planned for them

    def within(info: dict[str, Any], pool: torch.Tensor) -> torch.Tensor:
        two.solve(rows(3))
        return rising(info, pool)

    outer = hook.attach(solver(hook, within, n_steps=1))
    with pytest.raises(ArgumentError, match="another solve is under way"):
        outer.solve(rows(1))
    two.solve(rows(3))
    assert sorted(hook.iterations) == [0, 1, 2]


def by_pickle(value: Any) -> Any:  # noqa: ANN401
    return pickle.loads(pickle.dumps(value))  # noqa: S301


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, by_pickle])
def test_a_copy_of_an_attached_solver_solves_for_itself(
    copied: Callable[[Any], Any], hook: CemCertificates, counterparty: Counterparty
) -> None:
    original = hook.attach(solver(hook, environments=3, n_steps=2))
    original.solve(rows(3))
    answered, other = hook.iterations, copied(original)
    other.n_steps = 1
    asked(counterparty)
    other.solve(third())
    (its,) = other.callbacks
    assert asked(counterparty) == [2]
    assert [item.step for item in its.iterations[2]] == [0]
    assert its.rows[2]["id"] == 42
    if copied is not copy.copy:  # which shares what it is a copy of
        assert its is not hook
        assert hook.iterations is answered
    its.detach(other)
    original.solve(rows(3))
    assert len(asked(counterparty)) == (0 if copied is copy.copy else 3)


def test_mppi_has_no_callbacks_and_is_told_where_its_mean_is(hook: CemCertificates) -> None:
    planner = public_solver(rising, shape=(3, 2), kind="MPPI", num_samples=6, topk=2)
    with pytest.raises(ArgumentError, match=r"MPPISolver has no callbacks.*temperature"):
        hook.attach(planner)
    wrapped = solver(hook)
    wrapped.solve = wrapped.solve
    with pytest.raises(ArgumentError, match="not its class's"):
        hook.attach(wrapped)


@pytest.mark.parametrize("told", [[3], [-1], [0, 1], []])
def test_numbers_that_are_not_the_rows_environments_are_told(
    told: list[int], hook: CemCertificates, counterparty: Counterparty
) -> None:
    attached = hook.attach(solver(hook, environments=3))
    with pytest.raises(ArgumentError, match="wanted the numbers of 1 of 3 environments"):
        attached.solve({**only(rows(3), [0]), "environment": np.array(told, np.int64)})
    assert not counterparty.requests["Plan"]


def test_episodes_that_look_alike_do_not_tell_environments_apart(hook: CemCertificates) -> None:
    attached = hook.attach(solver(hook, environments=3, n_steps=1))
    alike = {**rows(3), "id": np.array([[7], [7], [8]])}
    attached.solve(alike)
    attached.solve(only(alike, [2]))
    assert list(hook.iterations) == [2]
    with pytest.raises(ArgumentError, match="not told which"):
        attached.solve(only(alike, [1]))


@pytest.mark.parametrize(("keeps", "kept"), [(5, 2), (2, 2), (1, 1), (0, 0)])
def test_icem_keeps_as_many_as_are_certified(keeps: int, kept: int, session: Opener) -> None:
    for given in (0, 1, 2):
        hook = CemCertificates(lambda env, given=given: session(env, kept_elites=given))
        attached = hook.attach(solver(hook, kind="ICEM", n_elite_keep=keeps))
        if given == kept:
            attached.solve(rows(1))
            assert hook.certified()
            continue
        wanted = f"kept_elites: found {given}, wanted the solver's n_elite_keep, {kept}"
        with pytest.raises(ArgumentError, match=wanted):
            attached.solve(rows(1))


def test_elites_that_are_kept_in_another_order_are_another_selection(session: Opener) -> None:
    """Its best of two is the server's second: the next pools differ, although the sets agree."""
    hook = CemCertificates(lambda env: session(env, kept_elites=1))

    def swapped(info: dict[str, Any], pool: torch.Tensor) -> torch.Tensor:
        return rising(info, pool)[:, [1, 0, *range(2, pool.shape[1])]]

    hook.attach(solver(hook, swapped, kind="ICEM", n_elite_keep=1)).solve(rows(1))
    assert [item.same_selection for item in hook.iterations[0]] == [False] * 3
    assert not hook.certified()


def test_infinite_costs_that_the_server_is_not_told_of_certify_nothing(session: Opener) -> None:
    hook = CemCertificates(session)

    def some(info: dict[str, Any], pool: torch.Tensor) -> torch.Tensor:
        return rising(info, pool).masked_fill(torch.arange(pool.shape[1]) == 5, torch.inf)

    hook.attach(solver(hook, some)).solve(rows(1))
    for item in hook.iterations[0]:
        assert item.same_selection
        assert item.cost_gap == np.inf
        assert not item.certified
