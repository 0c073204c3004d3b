"""Compiles a predictor's step for this machine's processor, in a process of its own.

    python -m acpc_server.engine.compiling FOLDER KEY SERVER < SPEC

SERVER is the process that waits, SPEC the JSON of :func:`acpc_server.engine.programs.spec_of`.
Weights are inputs of the program and rows are symbolic, so that it serves every checkpoint of the
architecture and calls of every size. Leaves ``KEY.so`` and ``KEY.json`` in the folder: its sha256,
and what eager and compiled steps take for some numbers of rows.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from acpc_server.engine.programs import load_step
from acpc_server.models import Form, Weights, predict_step

# Histories, and rows of each, at which a program is measured: a pair, merged pairs, pools.
SIZES = ((1, 2), (1, 16), (2, 64), (16, 64))
# Turns are long, since a system may count processor time by hundredths of a second.
ROUNDS, TURN_SECONDS = 5, 0.1
PROCESSOR_SECONDS = 900
_PR_SET_PDEATHSIG = 1


def _filled(shapes: Any) -> Any:  # noqa: ANN401
    """Random tensors of these shapes."""
    if not shapes:
        return None if shapes is None else ()
    if isinstance(shapes[0], int):
        return torch.rand(shapes)
    return tuple(_filled(part) for part in shapes)


def _fixed(tree: object) -> object:
    return tuple(_fixed(part) for part in tree) if isinstance(tree, tuple) else None


def _inputs(weights: Weights, g: int, n: int) -> tuple[Tensor, Tensor]:
    """A whole window and modulations for ``g`` histories and ``n`` rows of each."""
    positions, layers = weights[:2]
    t, hidden = len(positions), positions.shape[-1]
    return torch.randn(t, g, n, hidden), torch.randn(t, 6 * len(layers), 1, n, hidden)


def build(spec: dict[str, Any], library: Path) -> dict[int, list[float]]:
    """Compile into ``library``; return milliseconds, eager and compiled, by number of rows."""
    weights, form = _filled(spec["weights"]), Form(*spec["form"])

    class Module(nn.Module):
        def forward(self, weights: Weights, window: Tensor, modulations: Tensor) -> Tensor:
            return predict_step(weights, form, window, modulations, by_element=0)

    g, n = (torch.export.Dim(name, min=1) for name in "gn")
    exported = torch.export.export(
        Module(),
        (weights, *_inputs(weights, 2, 3)),
        dynamic_shapes=(_fixed(weights), {1: g, 2: n}, {3: n}),
    )
    package = torch._inductor.aoti_compile_and_package(  # noqa: SLF001 - it is public
        exported,
        package_path=str(library.with_suffix(".pt2")),
        # Headers are read once, and threads are those of the process that computes.
        inductor_configs={"aot_inductor.precompile_headers": False, "cpp.dynamic_threads": True},
    )
    with zipfile.ZipFile(package) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".so"))
        library.write_bytes(archive.read(name))
    library.chmod(0o700)
    compiled = load_step(library, weights)
    found: dict[int, list[float]] = {}
    for size in SIZES:
        given = _inputs(weights, *size)
        ways = [partial(predict_step, weights, form, *given), partial(compiled, *given)]
        found[size[0] * size[1]] = _alternated(ways)
    return found


def _alternated(ways: Sequence[Callable[[], object]]) -> list[float]:
    """Milliseconds of processor time of each, in turns of one length."""

    def took(way: Callable[[], object], calls: int) -> float:
        started = time.process_time()
        for _ in range(calls):
            way()
        return 1e3 * (time.process_time() - started) / calls

    started = time.perf_counter()
    for way in ways:
        way()
    calls = 1 + int(TURN_SECONDS * len(ways) / (time.perf_counter() - started))
    rounds = [[took(way, calls) for way in ways] for _ in range(ROUNDS)]
    return [sum(column) / ROUNDS for column in zip(*rounds, strict=True)]


def main(folder: Path, key: str, server: int) -> None:
    """Compile at the lowest priority; ends with the server that waits for it."""
    os.nice(19)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:  # it has ended before this
        return
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
    torch.set_num_threads(1)
    with torch.no_grad():
        rows = build(json.load(sys.stdin), Path.cwd() / f"{key}.so")
    sha256 = hashlib.sha256((Path.cwd() / f"{key}.so").read_bytes()).hexdigest()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(one.ru_utime + one.ru_stime for one in used)
    text = json.dumps({"sha256": sha256, "rows": rows, "seconds": seconds})
    (Path.cwd() / f"{key}.json").write_text(text)
    for suffix in (".so", ".json"):
        (Path.cwd() / f"{key}{suffix}").rename(folder / f"{key}{suffix}")
    shutil.rmtree(Path.cwd())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
