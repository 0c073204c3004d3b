"""Joining a solver of stable-worldmodel: which environments its rows are, around each ``solve``."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

import numpy as np
from acpc.arrays import NDArray
from acpc_client.errors import ArgumentError

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


class Solver(Protocol):
    """The part of a solver that ``attach`` uses."""

    callbacks: list[Any]
    n_envs: int


S = TypeVar("S", bound=Solver)


class SolverHook:
    """A callback of solvers whose ``around`` learns the environments of the rows of each solve."""

    def attach(self, solver: S) -> S:
        """Joins a solver: as one of its callbacks, and around its ``solve``; returns the solver.

        A ``PredictiveSamplingSolver``, which has no callbacks, is joined where it asks for costs.
        So the environment of each row is known, and no error inside ``solve`` leaves a session
        open. Attaching again changes nothing. A solver may have several hooks, and a hook several
        solvers, one solve at a time; answers are the last solve's. A copy of an attached solver
        has hooks and sessions of its own. Raises ArgumentError: The solver has no callbacks, as
        MPPI's.
        """
        if _is_of_one_pool(solver) and not hasattr(solver, "callbacks"):
            solver.callbacks = []
        if not isinstance(getattr(solver, "callbacks", None), list) or "solve" in vars(solver):
            raise ArgumentError(
                "solver",
                f"{type(solver).__name__} has no callbacks, or a solve that is not its class's; "
                "attach to a solver that selects, as CEMSolver does. MPPI's mean of one pool: "
                "client.certify_pool(..., temperature=...)",
            )
        if self not in solver.callbacks:
            solver.callbacks.append(self)
        if not isinstance(solver, _AttachedSolver):
            solver.__class__ = _attached(type(solver))
        return solver

    def detach(self, solver: S) -> S:
        """Leaves a solver, which is then as it was before; returns it."""
        if self in solver.callbacks:
            solver.callbacks.remove(self)
        others = any(isinstance(one, SolverHook) for one in solver.callbacks)
        if isinstance(solver, _AttachedSolver) and not others:
            solver.__class__ = type(solver).__bases__[1]
            if _is_of_one_pool(solver):
                del solver.callbacks
        return solver


class _AttachedSolver:
    """Goes before the class of an attached solver: ``solve`` passes the rows' environments on.

    A class, because a function that an instance is given would solve for the original in a copy.
    """

    callbacks: list[Any]
    n_envs: int

    def solve(self, info_dict: Mapping[str, Any], *given: Any, **named: Any) -> Any:  # noqa: ANN401
        info = dict(info_dict)
        envs = self._environments(info)
        rows = {
            env: {key: value[row] for key, value in info.items()} for row, env in enumerate(envs)
        }
        with ExitStack() as around:
            hooks: list[Any] = [one for one in self.callbacks if isinstance(one, SolverHook)]
            for hook in hooks:
                around.enter_context(hook.around(self, rows))
            if _is_of_one_pool(self):
                around.enter_context(_shown(self, hooks))
            return super().solve(info, *given, **named)  # type: ignore[misc]

    def _environments(self, info: dict[str, Any]) -> Sequence[int]:
        """Removes and returns the environments of an ``info_dict``'s rows, in their order."""
        given = info.pop("environment", None)
        rows = len(next(iter(info.values())))
        if given is not None:
            numbers: list[int] = integers(given).reshape(-1).tolist()
            if len({*numbers} & {*range(self.n_envs)}) != rows or len(numbers) != rows:
                raise ArgumentError(
                    "environment",
                    f"found {numbers}, wanted the numbers of {rows} of {self.n_envs} environments, "
                    "one for each row",
                )
            return numbers
        episodes: list[int] = integers(info.get("id", ())).reshape(-1).tolist()
        if rows == self.n_envs:
            vars(self)[_EPISODES] = episodes
            return range(rows)
        known: list[int] = vars(self).get(_EPISODES, [])
        if len(episodes) == rows == len({*episodes}) and all(known.count(e) == 1 for e in episodes):
            return [known.index(episode) for episode in episodes]
        raise ArgumentError(
            "environment",
            f"the solver was given {rows} of {self.n_envs} environments and not told which: "
            "put their numbers beside the other observations, info['environment']",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self).__bases__[1],), vars(self)


def _is_of_one_pool(solver: object) -> bool:
    """Whether it is a solver without callbacks whose plan is the best of its one pool."""
    return any(kind.__name__ == "PredictiveSamplingSolver" for kind in type(solver).__mro__)


@contextmanager
def _shown(solver: Any, hooks: Sequence[Any]) -> Iterator[None]:  # noqa: ANN401
    """Shows hooks the pools that a solver without callbacks asks the costs of, one a batch."""
    name = "cost" if hasattr(solver, "cost") else "model"
    minimised = getattr(solver, name)

    def get_cost(info: Any, candidates: Any) -> Any:  # noqa: ANN401
        costs = minimised.get_cost(info, candidates)
        best = floats(costs).argmin(axis=1)[:, None]
        for hook in hooks:
            hook.start_batch()
            hook(step=0, candidates=candidates, costs=costs, topk_inds=best)
        return costs

    setattr(solver, name, SimpleNamespace(get_cost=get_cost))
    try:
        yield
        for hook in hooks:
            hook.end_solve()
    finally:
        setattr(solver, name, minimised)


_EPISODES = "_acpc_episodes"  # attribute of an attached solver: those of its last whole solve


@functools.cache
def _attached(kind: type) -> type:
    return type(kind.__name__, (_AttachedSolver, kind), {"__module__": kind.__module__})


def _unpickled(kind: type) -> Any:  # noqa: ANN401 - a solver of any class
    return object.__new__(_attached(kind))


def integers(values: Any) -> Integers:  # noqa: ANN401 - tensor or array
    """int64 of a tensor or an array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values, dtype=np.int64)


def floats(values: Any) -> Floats:  # noqa: ANN401 - tensor or array
    """float32 of a tensor or an array; NumPy has no bfloat16, so tensors are widened first."""
    if hasattr(values, "detach"):
        values = values.detach().float().cpu().numpy()
    return np.asarray(values, dtype=np.float32)
