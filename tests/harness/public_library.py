"""The public library's modules and solvers, without the simulators that it imports as a whole.

Releases at hand: the wheel that is installed, and a checkout of newer sources which
ACPC_TEST_PUBLIC_SOURCE names.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal, NamedTuple

import pytest
import torch
from gymnasium.spaces import Box, Discrete
from programs import required
from torch import Tensor, nn

NAME, SOURCE = "stable_worldmodel", "ACPC_TEST_PUBLIC_SOURCE"
Release = Literal["wheel", "source"]
Kind = Literal["CEM", "ICEM", "MPPI", "CategoricalCEM", "PredictiveSampling"]
# Of newer sources only where a checkout is named, or must be.
RELEASES: list[Release] = ["wheel"]
if SOURCE in os.environ or required("public-source"):
    RELEASES.append("source")


def public_module(name: str) -> ModuleType:
    """A module of the release in use, such as ``data.formats.hdf5`` or ``solver.cem``.

    The library's own ``__init__`` imports every environment, and with them simulators; a package
    of the same name and path, and no more, stands in for it.
    """
    if NAME not in sys.modules:
        _put(Path(str(distribution("stable-worldmodel").locate_file(NAME))))
    return importlib.import_module(f"{NAME}.{name}")


def _put(folder: Path) -> None:
    package = ModuleType(NAME)
    package.__path__ = [str(folder)]
    sys.modules[NAME] = package


@contextmanager
def public_release(release: Release) -> Iterator[None]:
    """The release that ``public_module`` has: 0.1.1's wheel, or the checkout's sources."""
    if release == "source" and not (Path(os.environ.get(SOURCE, "")) / NAME).is_dir():
        pytest.fail(f"no newer sources of stable-worldmodel: name a checkout with {SOURCE}")
    before = {key: sys.modules.pop(key) for key in [*sys.modules] if key.split(".")[0] == NAME}
    try:
        if release == "source":
            _put(Path(os.environ[SOURCE]) / NAME)
        yield
    finally:
        for key in [key for key in sys.modules if key.split(".")[0] == NAME]:
            del sys.modules[key]
        sys.modules.update(before)


def _planning() -> bool:
    """Whether solvers lie in ``planning`` and take an evaluator of an objective."""
    public_module("protocols")
    return (Path(sys.modules[NAME].__path__[0]) / "planning/evaluator.py").is_file()


Cost = Callable[[dict[str, Any], Tensor], Tensor]


class _Costs(nn.Module):
    def __init__(self, cost: Cost, dtype: torch.dtype) -> None:
        super().__init__()
        self.get_cost = self.criterion = cost
        self.dtype = nn.Parameter(torch.zeros(1, dtype=dtype))

    def rollout(self, info: dict[str, Any], _: Tensor) -> dict[str, Any]:
        """What an evaluator asks of a model: costs here need no predictions."""
        return info


def evaluated(cost: Cost, dtype: torch.dtype = torch.float32) -> Any:
    """What solvers of the release in use minimise: costs, or an evaluator of them as objective."""
    model = _Costs(cost, dtype)
    if not _planning():
        return model

    evaluator = public_module("planning.evaluator").ShootingCostEvaluator
    return evaluator(model, _Objective(cost), encode_goal=None)


class _Objective(NamedTuple):
    """What an evaluator asks of an objective, where candidates alone decide."""

    cost: Cost

    def __call__(self, info: dict[str, Any]) -> Tensor:
        pool = info.pop("action_candidates")
        return self.cost(info, pool)


def public_solver(
    cost: Cost | nn.Module,
    *,
    shape: tuple[int, int],
    environments: int = 1,
    kind: Kind = "CEM",
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> Any:
    """A configured solver of the release in use.

    Args:
        cost: Costs (environments, candidates) of an ``info_dict`` with an axis of candidates, and
            of candidates (environments, candidates, H, width); or the library's own to minimise.
        shape: H and block width; of a discrete solver the number of actions.
        environments: What the whole world has.
        kind: Which solver.
        dtype: Of the candidates, as the library takes it from the model's parameters.
        options: The solver's own.
    """
    place = "planning.solver" if _planning() else "solver"
    minimised = cost if isinstance(cost, nn.Module) else evaluated(cost, dtype)
    name = {"CategoricalCEM": "categorical_cem", "PredictiveSampling": "predictive_sampling"}
    module = public_module(f"{place}.{name.get(kind, kind.lower())}")
    solver = getattr(module, f"{kind}Solver")(minimised, **options)
    horizon, width = shape
    discrete = kind == "CategoricalCEM"
    solver.configure(
        action_space=Discrete(width) if discrete else Box(-10, 10, (environments, width)),
        n_envs=environments,
        config=SimpleNamespace(horizon=horizon, action_block=1),
    )
    return solver
