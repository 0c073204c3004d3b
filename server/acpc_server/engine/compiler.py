"""Compiles a module ahead of time for the CPU, in a process of its own.

Compilation takes a minute of Python and C++; in the server's process it would hold the
interpreter lock that all calls need. The child gets the module, exports it at one shape and leaves
a package that the server loads. Whatever it writes is in one private folder: what a killed compiler
or another user left elsewhere is never built upon. It does not outlive the server.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
from torch import Tensor, nn

# Beside eight busy processes it takes some minutes.
COMPILE_SECONDS = 1800.0
# Of what a compiler says; the command that failed comes first, the cause at the end.
CAUSE_CHARACTERS = 1000
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
        args=(str(folder), str(sent), str(package), threads, reduced),
        name="compiler",
        daemon=True,
    )
    child.start()
    child.join(COMPILE_SECONDS)
    if child.is_alive():
        _end(child)
        raise CompilationFailed(f"the compiling process had not ended after {COMPILE_SECONDS:g} s")
    if child.exitcode or not package.is_file():
        cause = _cause(folder)
        raise CompilationFailed(
            f"the compiling process ended with {child.exitcode}{cause and f': {cause}'}"
        )
    # The package is a library the child has just built in a private folder.
    compiled = _load(str(package))
    _remove_unpacked()
    return compiled


def _load(package: str) -> Compute:
    """A package that was made on this host.

    ``aoti_load_package`` would first have a C++ compiler try what this processor can do, and
    believe programs that anyone may have left in a folder of that name.
    """
    made = importlib.import_module("torch._inductor.package").AOTICompiledModel
    runners, device = 1, -1
    compiled: Compute = made(
        torch._C._aoti.AOTIModelPackageLoader(package, "model", False, runners, device)
    )
    return compiled


def _remove_unpacked() -> None:
    """Remove the folders of packages that this process has loaded, which need them no more.

    torch removes them when it lets go of a package, which a process that is killed never does.
    """
    with suppress(OSError):  # where there is no /proc they stay
        mapped = Path("/proc/self/maps").read_text().splitlines()
        for path in {Path(line.split(maxsplit=5)[-1]) for line in mapped}:
            for folder in path.parents:
                if folder.name.startswith("aotinductor_"):
                    shutil.rmtree(folder, ignore_errors=True)


def _end(child: BaseProcess) -> None:
    """Kill the process and the compilers that it has started."""
    if child.pid is not None:
        with suppress(ProcessLookupError):  # it may have no group of its own yet
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.join()


def _cause(folder: Path) -> str:
    """What the child said before its end, or ''."""
    try:
        return (folder / "cause").read_text()[-CAUSE_CHARACTERS:]
    except OSError:
        return ""


def _compile(folder: str, sent: str, package: str, threads: int, reduced: bool) -> None:
    os.setpgid(0, 0)
    threading.Thread(target=_follow_parent, args=(folder,), daemon=True).start()
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/cache"
    torch.set_num_threads(threads)
    try:
        _package(sent, package, reduced)
    except Exception as error:  # noqa: BLE001 - told to the parent, which logs it
        with suppress(OSError):
            Path(folder, "cause").write_text(f"{type(error).__name__}: {error}")
        sys.exit(1)


def _package(sent: str, package: str, reduced: bool) -> None:
    # Classes of a private file that the parent has just written.
    module, inputs = torch.load(sent, weights_only=False)
    # Headers compiled ahead cost 300 MB, and more time than they save in one compilation.
    ahead = ("cpp_cache_precompile_headers", "aot_inductor.precompile_headers")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=reduced):
        program = torch.export.export(module.eval(), inputs)
        torch._inductor.aoti_compile_and_package(
            program,
            package_path=package,
            inductor_configs={"freezing": True, **dict.fromkeys(ahead, False)},
        )


def _follow_parent(folder: str) -> None:
    """End this process, its compilers and its folder once nobody waits for them any more."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)
