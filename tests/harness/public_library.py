"""The public library's modules and solvers, without the simulators that it imports as a whole."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import torch
from gymnasium.spaces import Box
from torch import Tensor


def public_module(name: str) -> ModuleType:
    """A module of stable-worldmodel 0.1.1, such as ``data.formats.hdf5`` or ``solver.cem``.

    The library's own ``__init__`` imports every environment, and with them simulators; a package
    of the same name and path, and no more, stands in for it.
    """
    if "stable_worldmodel" not in sys.modules:
        package = ModuleType("stable_worldmodel")
        package.__path__ = [str(distribution("stable-worldmodel").locate_file("stable_worldmodel"))]
        sys.modules["stable_worldmodel"] = package
    return importlib.import_module(f"stable_worldmodel.{name}")


Cost = Callable[[dict[str, Any], Tensor], Tensor]


class _Costs:
    """What its solvers minimise: a model with ``get_cost``, or an evaluator of an objective."""

    def __init__(self, cost: Cost, dtype: torch.dtype) -> None:
        self.get_cost = self.criterion = cost
        self._dtype = dtype

    def parameters(self) -> Iterator[Tensor]:
        return iter([torch.zeros(1, dtype=self._dtype)])


def public_solver(
    cost: Cost,
    *,
    shape: tuple[int, int],
    environments: int = 1,
    kind: Literal["CEM", "ICEM"] = "CEM",
    dtype: torch.dtype = torch.float32,
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """A configured ``CEMSolver`` or ``ICEMSolver``.

    Args:
        cost: Costs (environments, candidates) of an ``info_dict`` with an axis of candidates, and
            of candidates (environments, candidates, H, width).
        shape: H and block width.
        environments: What the whole world has.
        kind: Which solver.
        dtype: Of the candidates, as the library takes it from the model's parameters.
        options: The solver's own.
    """
    module = public_module(f"solver.{kind.lower()}")
    solver = getattr(module, f"{kind}Solver")(_Costs(cost, dtype), **options)
    horizon, width = shape
    solver.configure(
        action_space=Box(-10, 10, (environments, width)),
        n_envs=environments,
        config=SimpleNamespace(horizon=horizon, action_block=1),
    )
    return solver
