"""Compiles one rollout of a candidate pool ahead of time, in a process of its own.

Compilation takes a minute of Python and C++; in the server's process it would hold the
interpreter lock that all calls need. The child gets the network, exports the rollout at one shape
and leaves a package that the server loads.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from acpc_server.models import FrozenWorldModel, rollout_pool

Compute = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Histories (v, h, dim), past blocks and pools to (v, j, horizon, dim)."""


@runtime_checkable
class HasNetwork(Protocol):
    """A frozen model that shows the network behind it."""

    @property
    def network(self) -> nn.Module:
        """All weights that a rollout reads."""
        ...


class CompilationFailed(Exception):
    """The child process made no package; the message says why."""


class _PoolModule(nn.Module):
    """The rollout as a module, which is what export takes."""

    def __init__(self, model: FrozenWorldModel, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self._model = model

    def forward(self, histories: Tensor, past: Tensor, pools: Tensor) -> Tensor:
        """As ``rollout_pool``."""
        return rollout_pool(self._model, histories, past, pools)


def compile_pool(
    model: FrozenWorldModel, inputs: tuple[Tensor, ...], folder: Path, threads: int
) -> Compute:
    """A compiled rollout for inputs of these very shapes, computing on ``threads`` CPU threads.

    Blocks for a minute or more. Needs a C++ compiler.
    """
    if not isinstance(model, HasNetwork):
        raise CompilationFailed("the model's family does not show its network")
    package = folder / "pool.pt2"
    # Not a fork: the server has threads, and OpenMP does not survive one.
    child = multiprocessing.get_context("spawn").Process(
        target=_compile, args=(model, inputs, str(package), threads), name="compiler", daemon=True
    )
    try:
        child.start()
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise CompilationFailed(f"the model cannot be sent to the compiler: {error}") from error
    child.join()
    if child.exitcode or not package.is_file():
        raise CompilationFailed(
            f"the compiling process ended with {child.exitcode}; see its output"
        )
    # The package is a library the child has just built in a private folder.
    runner = torch._inductor.aoti_load_package(str(package))
    compiled: Compute = runner
    return compiled


def _compile(
    model: FrozenWorldModel, inputs: tuple[Tensor, ...], package: str, threads: int
) -> None:
    torch.set_num_threads(threads)
    if not isinstance(model, HasNetwork):
        raise CompilationFailed("the model's family does not show its network")
    with torch.no_grad():
        program = torch.export.export(_PoolModule(model, model.network).eval(), inputs)
        torch._inductor.aoti_compile_and_package(
            program, package_path=package, inductor_configs={"freezing": True}
        )
