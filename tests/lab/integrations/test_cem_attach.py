"""Attached again, to several solvers, by several at once, to copies; driven by a policy."""

import copy
import pickle
import sys
from collections import defaultdict
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from acpc_client.errors import ArgumentError
from acpc_client.sync.session import PlanSession
from acpc_lab.integrations import CemCertificates
from cem_solvers import Sessions, only, rising, rows, solver
from client_counterparty import Counterparty
from gymnasium.spaces import Box
from public_library import public_module, public_solver

pytestmark = pytest.mark.usefixtures("release")
OPENERS: dict[str, Any] = {}  # a copy by pickle finds its opener by name


def opened(env: int) -> PlanSession:
    return OPENERS["here"](env)


@pytest.fixture
def hook(session: Sessions) -> CemCertificates:
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
    assert [item.certified for item in hook.iterations[2]] == [True]


def test_the_solver_itself_is_as_it_was(hook: CemCertificates, counterparty: Counterparty) -> None:
    plain = solver(hook)
    plain.callbacks.clear()
    before = {**vars(plain)}
    attached = hook.attach(plain)
    assert "callbacks" in attached.solve(rows(1))
    assert (attached.solver, vars(plain)) == (plain, before) and plain.callbacks == []
    asked(counterparty)
    assert "callbacks" not in plain.solve(rows(1))
    assert not counterparty.requests["Plan"]
    attached.n_steps = 1
    assert plain.n_steps == attached.n_steps == 1


def test_a_solver_may_have_several(session: Sessions) -> None:
    hooks = [CemCertificates(session, name=name) for name in ("one", "other")]
    plain = solver(hooks[0])
    plain.callbacks.clear()
    attached = hooks[1].attach(hooks[0].attach(plain))
    assert hooks[0].attach(attached) is attached
    attached.solve({**rows(1), "environment": np.array([0])})
    assert [len(hook.iterations[0]) for hook in hooks] == [3, 3]


def test_a_solver_without_callbacks_is_joined_where_it_asks_for_costs(session: Sessions) -> None:
    """Its one pool is its only iteration; what it minimises is its own again after each solve."""
    shape = {"shape": (3, 2), "environments": 3, "num_samples": 6}
    plain = public_solver(rising, kind="PredictiveSampling", **shape, batch_size=2)
    before = {**vars(plain)}
    hook = CemCertificates(session, select="top1")
    attached = hook.attach(hook.attach(plain))
    attached.solve(rows(3))
    assert [[item.step for item in hook.iterations[env]] for env in range(3)] == [[0]] * 3
    assert all(hook.certified(env) for env in range(3))
    assert [batch[0]["certified"] for batch in hook.history] == [[True, True], [True]]
    attached.solve(third())
    assert list(hook.iterations) == [2]
    asked(session.server)
    assert vars(plain).keys() == before.keys()
    assert all(vars(plain)[key] is value for key, value in before.items())
    plain.solve(rows(3))
    assert not session.server.requests["Plan"]


def by_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301


@pytest.mark.parametrize("copied", [copy.deepcopy, by_pickle])
def test_a_copy_of_an_attached_solver_solves_for_itself(
    copied: Callable[[Any], Any], hook: CemCertificates, counterparty: Counterparty
) -> None:
    original = hook.attach(solver(hook, environments=3, n_steps=2))
    original.solve(rows(3))
    answered, other = hook.iterations, copied(original)
    other.n_steps = 1
    asked(counterparty)
    other.solve(third())
    its = other.hook
    assert asked(counterparty) == [2]
    assert [item.step for item in its.iterations[2]] == [0]
    assert its.rows[2]["id"] == 42
    assert its is not hook
    assert hook.iterations is answered
    original.solve(rows(3))
    assert len(asked(counterparty)) == 3


@pytest.mark.parametrize("told", [[3], [-1], [0, 1], []])
def test_numbers_that_are_not_the_rows_environments_are_told(
    told: list[int], hook: CemCertificates, counterparty: Counterparty
) -> None:
    attached = hook.attach(solver(hook, environments=3))
    with pytest.raises(ArgumentError, match="wanted the numbers of 1 of 3 environments"):
        attached.solve({**only(rows(3), [0]), "environment": np.array(told, np.int64)})
    assert not counterparty.requests["Plan"]


@pytest.mark.parametrize(("keeps", "kept"), [(5, 2), (2, 2), (1, 1), (0, 0)])
def test_icem_keeps_as_many_as_are_certified(keeps: int, kept: int, session: Sessions) -> None:
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


def test_elites_that_are_kept_in_another_order_are_another_selection(session: Sessions) -> None:
    """Its best of two is the server's second: the next pools differ, although the sets agree."""
    hook = CemCertificates(lambda env: session(env, kept_elites=1))

    def swapped(info: dict[str, Any], pool: torch.Tensor) -> torch.Tensor:
        return rising(info, pool)[:, [1, 0, *range(2, pool.shape[1])]]

    hook.attach(solver(hook, swapped, kind="ICEM", n_elite_keep=1)).solve(rows(1))
    assert [item.same_selection for item in hook.iterations[0]] == [False] * 3
    assert not hook.certified()


def test_infinite_costs_that_the_server_is_not_told_of_certify_nothing(session: Sessions) -> None:
    hook = CemCertificates(session)

    def some(info: dict[str, Any], pool: torch.Tensor) -> torch.Tensor:
        return rising(info, pool).masked_fill(torch.arange(pool.shape[1]) == 5, torch.inf)

    hook.attach(solver(hook, some)).solve(rows(1))
    for item in hook.iterations[0]:
        assert item.same_selection
        assert item.cost_gap == np.inf
        assert not item.certified


WIDTH, BLOCK, HORIZON = 2, 2, 3
World = SimpleNamespace(
    num_envs=3, action_space=Box(-10, 10, (3, WIDTH)), single_action_space=Box(-10, 10, (WIDTH,))
)


@pytest.fixture
def policies(release: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The library's policies; they import torchvision for a class that transforms alone need."""
    for name in ("torchvision", "torchvision.tv_tensors"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["torchvision"].tv_tensors = None
    return public_module("policy")


@pytest.mark.parametrize("kind", ["CEM", "ICEM"])
def test_a_policy_plans_for_those_that_go_on(
    kind: Literal["CEM", "ICEM"], release: str, policies: ModuleType, session: Sessions
) -> None:
    """Environment 1 ends after the first plan; its rows are asked for no more, nor others' as its.

    The newer sources give blocks that were executed between the frames of a history.
    """
    histories = release == "source"
    frames = 3 if histories else 1
    hook = CemCertificates(lambda env: session(env, kept_elites=2 * (kind == "ICEM")))
    solver = public_solver(
        rising, shape=(HORIZON, WIDTH), environments=3, kind=kind, num_samples=6, topk=2, n_steps=2
    )
    options = {"history_len": frames}
    config = policies.PlanConfig(horizon=HORIZON, receding_horizon=1, action_block=BLOCK, **options)
    policy = policies.WorldModelPolicy(hook.attach(solver), config)
    policy.set_env(World)
    seen: dict[int, list[Any]] = defaultdict(list)
    executed = np.zeros((3, WIDTH), np.float32)
    for step in range(5 * BLOCK):
        info = {
            "pixels": np.full((3, 1, 4), step) + 100 * np.arange(3)[:, None, None],
            "id": np.array([[40], [41], [42]]),
            "terminated": np.array([False, step > 0, False]),
            "action": executed[:, None],
        }
        executed = policy.get_action(info)
        assert np.isnan(executed[1]).all() == (step > 0)
        if step % BLOCK == 0:
            assert sorted(hook.iterations) == ([0, 1, 2] if step == 0 else [0, 2])
        for env, row in hook.rows.items():
            assert hook.certified(env)
            assert int(row["pixels"].flatten()[-1]) == step - step % BLOCK + 100 * env
            if step % BLOCK == 0 and "action_history" in row:
                seen[env].append(tuple(row["action_history"].shape))
    shapes = [(blocks, BLOCK * WIDTH) for blocks in (1, 2, 2, 2)] if frames > 1 else []
    assert dict(seen) == ({0: shapes, 2: shapes} if shapes else {})
