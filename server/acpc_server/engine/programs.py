"""Computes a predictor's steps on a CPU by a compiled program, where it has proved itself.

An architecture whose eager rollouts have taken as long as compiling takes is compiled in a process
of its own, of the lowest priority (:mod:`acpc_server.engine.compiling`), and kept in a folder that
only this user may use. A checkpoint's first call after that is computed both ways and answered
eagerly; where both agree, the program serves from then on. Jobs are always computed eagerly: what
they give must not depend on what came before.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import structlog
import torch
from acpc.contract import NumericMode
from torch import Tensor

from acpc_server.models import (
    FrozenJepa,
    FrozenWorldModel,
    JepaRollout,
    Step,
    Weights,
    predict_step,
)
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext

log = structlog.get_logger("acpc.engine")
GRAPH, INDUCTOR = "graph", "inductor"
# Seconds of eager rollouts after which compiling, which takes about as long, has paid for itself
# when as much is asked again.
AFTER = 20.0
# A program serves a number of rows where it takes at most 1 / WIN of eager's processor time, and
# less than so many milliseconds, for which it holds the interpreter.
WIN, HELD_MS = 1.15, 10.0
TOLERANCE = 1e-5  # of the largest number


@dataclass
class _Program:
    """The program of one architecture, and how far it has come."""

    key: str
    spec: dict[str, Any]
    spent: float = 0.0
    sought: bool = False  # on the disk
    child: subprocess.Popen[bytes] | None = None
    rows: dict[int, list[float]] = field(default_factory=dict)
    library: Path | None = None
    off: bool = False


class StepPrograms:
    """Programs by architecture; for the device's thread only.

    ``folder`` holds them, None: none are used. Compiles after ``after`` seconds of eager rollouts.
    """

    def __init__(self, metrics: Metrics, folder: Path | None, after: float = AFTER) -> None:
        self._metrics, self._after = metrics, after
        self._folder = folder
        self._compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
        self._programs: dict[str, _Program] = {}
        self._of = WeakKeyDictionary[JepaRollout, _Program]()
        self._steps = WeakKeyDictionary[JepaRollout, Step]()  # that agreed with eager

    @contextmanager
    def serve(
        self, model: FrozenWorldModel, mode: NumericMode, context: RequestContext, rows: int
    ) -> Iterator[None]:
        """Compute the rollout in the block by a program where one is ready, and name it.

        What a request has begun eagerly it ends eagerly.
        """
        rollout = model.steps if isinstance(model, FrozenJepa) else None
        served = mode is NumericMode.FP32 and context.priority is Priority.INTERACTIVE
        if self._folder is None or rollout is None or not served:
            yield
            return
        if (program := self._of.get(rollout)) is None:
            spec = spec_of(rollout)
            key = program_key(spec)
            program = self._of[rollout] = self._programs.setdefault(key, _Program(key, spec))
        step = None if program.off else self._steps.get(rollout)
        if context.program is None:
            ready = step is not None and pays(program.rows, rows)
            context.program = INDUCTOR if ready else ""
        started = time.thread_time()
        if context.program and step is not None and pays(program.rows, rows):
            rollout.compiled = step
        elif self._advance(program):
            rollout.compiled = self._checking(program, rollout)
        try:
            yield
        finally:
            rollout.compiled = None
            program.spent += time.thread_time() - started

    def close(self) -> None:
        """End what is compiling."""
        for program in self._programs.values():
            if program.child is not None and program.child.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(program.child.pid, signal.SIGKILL)
                program.child.wait()

    def _advance(self, program: _Program) -> bool:
        """Look for a program, begin or end compiling it; return whether there is one to check."""
        if program.off or program.library is not None:
            return not program.off
        if program.child is not None:
            if (code := program.child.poll()) is None:
                return False
            program.child = None
            self._load(program)
            if program.library is None:
                self._reject(program, "not_compiled", f"exit code {code}")
        elif not program.sought:
            program.sought = True
            self._load(program)
        elif program.spent >= self._after:
            try:
                self._compile(program)
            except OSError as error:  # no room on the disk, no process: eager serves
                self._reject(program, "not_compiled", str(error))
        return program.library is not None

    def _load(self, program: _Program) -> None:
        assert self._folder is not None  # noqa: S101
        library, about = (self._folder / f"{program.key}{end}" for end in (".so", ".json"))
        if not about.exists():
            return
        try:
            found = json.loads(_own(about))
            rows = {int(one): [float(x) for x in took] for one, took in found["rows"].items()}
            if not rows or hashlib.sha256(_own(library)).hexdigest() != found["sha256"]:
                raise ValueError("it is not what was compiled")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._metrics.programs_rejected.labels("corrupt").inc()
            log.warning("program_ignored", key=program.key, why=str(error))
            with suppress(OSError):
                about.unlink()
            return
        program.rows, program.library = rows, library
        log.info("program_loaded", key=program.key, rows=rows, seconds=found["seconds"])

    def _compile(self, program: _Program) -> None:
        assert self._folder is not None  # noqa: S101
        if not self._compiler:
            self._reject(program, "no_compiler", "neither g++ nor clang++ is on the path")
            return
        place = self._folder / f"build-{program.key}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        own = {
            "CXX": self._compiler, "TMPDIR": str(place), "TORCHINDUCTOR_CACHE_DIR": str(place),
            "TORCHINDUCTOR_VEC_ISA_OK": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }  # fmt: skip
        command = [sys.executable, "-P", "-m", "acpc_server.engine.compiling"]
        spec = place / "spec.json"
        spec.write_text(json.dumps(program.spec))
        with spec.open("rb") as given, (place / "log").open("wb") as said:
            program.child = subprocess.Popen(  # noqa: S603
                [*command, str(self._folder.resolve()), program.key, str(os.getpid())],
                stdin=given, stdout=said, stderr=said, cwd=place,
                env={**os.environ, **own}, start_new_session=True,
            )  # fmt: skip
        log.info("program_compiling", key=program.key, after=round(program.spent, 1))

    def _checking(self, program: _Program, rollout: JepaRollout) -> Step:
        """Return a step that compares the program with eager once, and answers eagerly."""
        unchecked = [program.library]

        def step(window: Tensor, modulations: Tensor) -> Tensor:
            wanted = rollout.step(window, modulations)
            if unchecked and (library := unchecked.pop()) is not None:
                try:
                    compiled = load_step(library, rollout.weights)
                    found = compiled(window, modulations)
                except (RuntimeError, AttributeError) as error:  # of another torch, or no such file
                    self._reject(program, "raised", str(error))
                    return wanted
                scale = wanted.abs().max().clamp(min=1e-30)
                difference = float((found - wanted).abs().max() / scale)
                if difference <= TOLERANCE:  # NaN is not
                    self._steps[rollout] = compiled
                    self._metrics.programs.set(len(self._steps))
                    log.info("program_serves", key=program.key, difference=difference)
                else:
                    self._reject(program, "differs", difference)
            return wanted

        return step

    def _reject(self, program: _Program, reason: str, found: float | str) -> None:
        program.off = True
        self._metrics.programs_rejected.labels(reason).inc()
        log.warning("program_rejected", key=program.key, reason=reason, found=found)


def spec_of(rollout: JepaRollout) -> dict[str, Any]:
    """Describe a step: shapes of its weights, and form."""
    return {"weights": _shapes(rollout.weights), "form": [*rollout.form]}


def load_step(library: Path, weights: Weights) -> Step:
    """Load a compiled step with the weights of one checkpoint; RuntimeError: it cannot be."""
    runner = torch._C._aoti.AOTIModelContainerRunnerCpu(str(library), 1)  # noqa: SLF001
    held = [x.contiguous() for x in _tensors(weights)]

    def step(window: Tensor, modulations: Tensor) -> Tensor:
        found: Tensor = runner.run([*held, window, modulations])[0]
        return found

    return step


def _shapes(tree: object) -> object:
    if isinstance(tree, tuple):
        return [_shapes(part) for part in tree]
    return [*tree.shape] if isinstance(tree, Tensor) else None


def _tensors(tree: object) -> list[Tensor]:
    """Return the tensors of nested tuples, in the order in which a program takes them."""
    if isinstance(tree, tuple):
        return [found for part in tree for found in _tensors(part)]
    return [tree] if isinstance(tree, Tensor) else []


def pays(took: Mapping[int, Sequence[float]], rows: int) -> bool:
    """Return whether a program is worth using, by what it took for the next smaller number of rows.

    ``took`` has milliseconds of a step, eager and compiled, by number of rows.
    """
    measured = max((one for one in took if one <= rows), default=min(took))
    eager, compiled = took[measured]
    return compiled * WIN <= eager and compiled * rows / measured <= HELD_MS


def program_key(spec: dict[str, Any]) -> str:
    """Name a program by its step, how that is written, and what it is compiled with and for."""
    written = Path(predict_step.__code__.co_filename).read_bytes()
    machine = [torch.__version__, torch.backends.cpu.get_cpu_capability()]
    # What was compiled for another processor would end the server.
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        machine.append(next(x for x in lines if x.startswith(("flags", "Features"))))
    text = json.dumps([spec, hashlib.sha256(written).hexdigest(), machine], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def private_folder(folder: Path) -> Path:
    """Make a folder for programs; OSError where it cannot be, or where others may use it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"others may use {folder}")
    return folder


def _own(file: Path) -> bytes:
    """Read a file of this user's, no link; OSError, ValueError: it is another's."""
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW), "rb") as opened:
        found = os.fstat(opened.fileno())
        if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not this user's")
        return opened.read()
