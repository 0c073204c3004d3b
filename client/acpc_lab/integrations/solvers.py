"""A solver of stable-worldmodel with a hook around it, which learns whose rows a solve has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from acpc.arrays import NDArray
from acpc_client.errors import ArgumentError

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


class AttachedSolver:
    """A solver with a hook around each ``solve``; all else, read or set, is the solver's own.

    The hook is among the callbacks of the solver while that solves. A ``PredictiveSamplingSolver``,
    which has none, is joined where it asks for costs. Between two solves the solver is as it was.

    Attributes:
        solver: The solver, or another one of these around it.
        hook: The callback, whose ``around`` learns the environments of the rows of each solve.
        episodes: Those of the last whole solve, by environment.

    Raises ArgumentError: The solver has no callbacks, as MPPI's.
    """

    solver: Any
    hook: Any
    episodes: list[int]

    def __init__(self, solver: Any, hook: Any) -> None:  # noqa: ANN401 - of a library not imported
        vars(self).update(solver=solver, hook=hook, episodes=[])
        if not (self._is_of_one_pool() or isinstance(getattr(solver, "callbacks", None), list)):
            raise ArgumentError(
                "solver",
                f"{type(solver).__name__} has no callbacks; attach to a solver that selects, as "
                "CEMSolver does. MPPI's mean of one pool: "
                "client.certify_pool(..., temperature=...)",
            )

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the solver's
        if name == "solver" or name.startswith("__"):  # a copy is asked before it has one
            raise AttributeError(name)
        return getattr(self.solver, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.solver, name, value)

    def __call__(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        """Solves, as the library's solvers do when they are called."""
        return self.solve(*given, **named)

    def solve(self, info_dict: Mapping[str, Any], *given: Any, **named: Any) -> Any:  # noqa: ANN401
        """Solves with the hook; raises ArgumentError where nothing says whose the rows are."""
        info = dict(info_dict)
        envs = self._environments(info)
        rows = {
            env: {key: value[row] for key, value in info.items()} for row, env in enumerate(envs)
        }
        inner = info_dict if isinstance(self.solver, AttachedSolver) else info
        joined = self._asked_costs if self._is_of_one_pool() else self._called_back
        with self.hook.around(self.solver, rows), joined():
            return self.solver.solve(inner, *given, **named)

    def _is_of_one_pool(self) -> bool:
        """Whether it is a solver without callbacks whose plan is the best of its one pool."""
        solver = self.solver
        while isinstance(solver, AttachedSolver):
            solver = solver.solver
        return any(kind.__name__ == "PredictiveSamplingSolver" for kind in type(solver).__mro__)

    @contextmanager
    def _called_back(self) -> Iterator[None]:
        """Puts the hook among the solver's callbacks, unless it is there."""
        callbacks = self.solver.callbacks
        self.solver.callbacks = [*callbacks, *([] if self.hook in callbacks else [self.hook])]
        try:
            yield
        finally:
            self.solver.callbacks = callbacks

    @contextmanager
    def _asked_costs(self) -> Iterator[None]:
        """Shows the hook the pools that the solver asks the costs of, one a batch."""
        name = "cost" if hasattr(self.solver, "cost") else "model"
        minimised = getattr(self.solver, name)

        def get_cost(info: Any, candidates: Any) -> Any:  # noqa: ANN401
            costs = minimised.get_cost(info, candidates)
            best = floats(costs).argmin(axis=1)[:, None]
            self.hook.start_batch()
            self.hook(step=0, candidates=candidates, costs=costs, topk_inds=best)
            return costs

        setattr(self.solver, name, SimpleNamespace(get_cost=get_cost))
        try:
            yield
            self.hook.end_solve()
        finally:
            setattr(self.solver, name, minimised)

    def _environments(self, info: dict[str, Any]) -> Sequence[int]:
        """Removes and returns the environments of an ``info_dict``'s rows, in their order."""
        given, count = info.pop("environment", None), self.solver.n_envs
        rows = len(next(iter(info.values()), ()))
        if given is not None:
            numbers: list[int] = integers(given).reshape(-1).tolist()
            if len({*numbers} & {*range(count)}) != rows or len(numbers) != rows:
                raise ArgumentError(
                    "environment",
                    f"found {numbers}, wanted the numbers of {rows} of {count} environments, "
                    "one for each row",
                )
            return numbers
        episodes: list[int] = integers(info.get("id", ())).reshape(-1).tolist()
        known = self.episodes
        if rows == count:
            known[:] = episodes
            return range(rows)
        if len(episodes) == rows == len({*episodes}) and all(known.count(e) == 1 for e in episodes):
            return [known.index(episode) for episode in episodes]
        raise ArgumentError(
            "environment",
            f"the solver was given {rows} of {count} environments and not told which: "
            "put their numbers beside the other observations, info['environment']",
        )


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
