"""Compiles a module ahead of time for the CPU, in a process of its own.

Compilation takes a minute of Python and C++; in the server's process it would hold the
interpreter lock that all calls need. The child gets the module, exports it at one shape and leaves
a package that the server loads.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

# Beside eight busy processes it takes some minutes.
COMPILE_SECONDS = 1800.0
Compute = Callable[..., Tensor]
"""Tensors of fixed shapes to one tensor."""


class CompilationFailed(Exception):
    """The child process made no package; the message says why."""


def compile_module(
    module: nn.Module, inputs: tuple[Tensor, ...], folder: Path, threads: int, *, reduced: bool
) -> Compute:
    """The compiled module for contiguous inputs of these very shapes, on ``threads`` CPU threads.

    With ``reduced`` it computes as under bfloat16 autocast. Every weight that ``module`` reads must
    be registered with it. Blocks for a minute or more and needs a C++ compiler.

    Raises:
        CompilationFailed: The module cannot be sent to the compiler, or not be compiled.
    """
    sent, package = folder / "module.pt", folder / "package.pt2"
    # Through a file: as an argument of the child, torch would move the weights into shared memory
    # and free what the device's thread is computing with.
    try:
        torch.save((module, inputs), sent)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise CompilationFailed(f"the model cannot be sent to the compiler: {error}") from error
    # Not a fork: the server has threads, and OpenMP does not survive one.
    child = multiprocessing.get_context("spawn").Process(
        target=_compile,
        args=(str(sent), str(package), threads, reduced),
        name="compiler",
        daemon=True,
    )
    child.start()
    child.join(COMPILE_SECONDS)
    if child.is_alive():
        child.kill()
        child.join()
        raise CompilationFailed(f"the compiling process had not ended after {COMPILE_SECONDS:g} s")
    if child.exitcode or not package.is_file():
        raise CompilationFailed(
            f"the compiling process ended with {child.exitcode}; see its output"
        )
    # The package is a library the child has just built in a private folder.
    compiled: Compute = torch._inductor.aoti_load_package(str(package))
    return compiled


def _compile(sent: str, package: str, threads: int, reduced: bool) -> None:
    torch.set_num_threads(threads)
    # Classes of a private file that the parent has just written.
    module, inputs = torch.load(sent, weights_only=False)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=reduced):
        program = torch.export.export(module.eval(), inputs)
        torch._inductor.aoti_compile_and_package(
            program, package_path=package, inductor_configs={"freezing": True}
        )
