"""A pool shape that keeps coming gets a fast path, and no answer of it is served unwatched."""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace

import processes
import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceEngine, fast_paths
from acpc_server.engine.compiler import CompilationFailed, compile_module
from acpc_server.engine.pools import REDUCED_TOLERANCE
from acpc_server.models import FrozenWorldModel, rollout_pool
from acpc_server.models.loader import load_checkpoint
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from programs import required
from public_checkpoint import write_checkpoint
from torch import Tensor, nn
from waiting import GENEROUS_SECONDS, wait_until

CPU = torch.device("cpu")
SECONDS = 840.0  # a compiler beside eight busy processes takes minutes
Lie = Callable[[Tensor], Tensor]
TRUE: Lie = lambda answer: answer  # noqa: E731


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> FrozenWorldModel:
    root = tmp_path_factory.mktemp("checkpoints")
    write_checkpoint(root / "model")
    return load_checkpoint(root, "model", device=CPU)


def pool(seed: int, candidates: int = 6, pools: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(2, 3, 16, generator=generator),
        torch.randn(2, 10, generator=generator),
        torch.randn(pools, candidates, 4, 10, generator=generator),
    )


def ask(
    engine: DeviceEngine,
    model: FrozenWorldModel,
    inputs: tuple[Tensor, Tensor, Tensor],
    priority: Priority = Priority.INTERACTIVE,
    mode: NumericMode = NumericMode.FP32,
) -> Tensor:
    return engine.rollout_pool(model, *inputs, RequestContext(priority), mode)


class Bench:
    """An engine whose compiler is quick, and gives a fast path that lies from some answer on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, model: FrozenWorldModel) -> None:
        self.metrics = Metrics()
        self.model = model
        self.lie: Lie = TRUE
        self.calls = 0
        self.engine = DeviceEngine(CPU, self.metrics, threads=1, compile_after=1)
        monkeypatch.setattr(fast_paths, "compile_module", self._compile)

    def _compile(
        self, module: nn.Module, inputs: tuple[Tensor, ...], *_: object, reduced: bool
    ) -> object:
        shapes = [x.shape for x in inputs]

        def fast(*tensors: Tensor) -> Tensor:
            self.calls += 1
            # As compiled code does: it reads the memory as it lay when it was compiled.
            lain = [
                x.as_strided(shape, torch.empty(shape).stride())
                for x, shape in zip(tensors, shapes, strict=True)
            ]
            return self.lie(module(*lain))

        return fast

    def agrees(self, seed: int, tolerance: float = 1e-5, **shape: int) -> bool:
        inputs = pool(seed, **shape)
        eager = rollout_pool(self.model, *inputs)
        difference = (ask(self.engine, self.model, inputs) - eager).abs().max()
        return bool(difference <= tolerance * eager.abs().max())

    def serving(self) -> float:
        found = self.metrics.registry.get_sample_value("acpc_fast_paths", {"primitive": "pool"})
        return found or 0.0

    def ended(self, reason: str) -> float:
        labels = {"primitive": "pool", "reason": reason}
        found = self.metrics.registry.get_sample_value("acpc_fast_paths_ended_total", labels)
        return found or 0.0

    def until_it_serves(self, **shape: int) -> None:
        wait_until(lambda: self.agrees(1, **shape) and self.serving() == 1)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, model: FrozenWorldModel) -> Iterator[Bench]:
    made = Bench(monkeypatch, model)
    yield made
    made.engine.close()


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("g++") is None and not required("g++"),
    reason="needs a C++ compiler: apt install g++",
)
@pytest.mark.parametrize(
    ("mode", "tolerance"), [(NumericMode.FP32, 1e-5), (NumericMode.BF16, REDUCED_TOLERANCE)]
)
def test_a_repeated_shape_is_compiled_and_agrees(
    model: FrozenWorldModel,
    mode: NumericMode,
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    metrics = Metrics()
    engine = DeviceEngine(CPU, metrics, threads=1, compile_after=2)
    job = ask(engine, model, pool(5), Priority.JOB, mode)
    give_up = time.monotonic() + SECONDS
    while not metrics.registry.get_sample_value("acpc_fast_paths", {"primitive": "pool"}):
        assert time.monotonic() < give_up, "the pool was never compiled"
        ask(engine, model, pool(1), mode=mode)
        time.sleep(0.2)
    for seed in (2, 3):  # other values than those it was compiled and checked with
        fast = ask(engine, model, pool(seed), mode=mode)
        eager = ask(engine, model, pool(seed), Priority.JOB, mode)
        assert (fast - eager).abs().max() <= tolerance * eager.abs().max()
    assert not [x for x in tmp_path.rglob("*") if x.is_file()], "copies of the weights"
    again = ask(engine, model, pool(5), Priority.JOB, mode)
    assert torch.equal(job, again), "a job's bytes do not change"
    engine.close()


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (lambda x: x * torch.nan, "not_finite"),
        (lambda x: x / 0, "not_finite"),
        (lambda x: x.clone().index_fill_(1, torch.tensor(3), torch.nan), "not_finite"),
        (lambda x: x * 1e3, "implausible"),
    ],
)
def test_an_answer_that_cannot_be_is_never_served(bench: Bench, lie: Lie, reason: str) -> None:
    bench.until_it_serves()
    assert bench.agrees(2)
    bench.lie = lie
    assert all(bench.agrees(seed, 0.0) for seed in (3, 4)), "computed eagerly"
    assert (bench.ended(reason), bench.serving()) == (1, 0)
    bench.lie, calls = TRUE, bench.calls
    assert bench.agrees(5, 0.0)
    assert bench.calls == calls, "and the path is not asked again"


def off(where: object) -> Lie:
    """A little off, in some of an answer (histories, candidates, steps, dim)."""

    def lie(answer: Tensor) -> Tensor:
        wrong = answer.clone()
        wrong[where] *= 1 + 1e-3
        return wrong

    return lie


@pytest.mark.parametrize("where", [..., (..., slice(-1, None), slice(None)), (..., 5)])
def test_a_lie_in_every_rollout_is_never_served(bench: Bench, where: object) -> None:
    bench.until_it_serves()
    assert bench.agrees(2)
    bench.lie = off(where)
    assert bench.agrees(3, 0.0), "computed eagerly"
    assert (bench.ended("differs"), bench.serving()) == (1, 0)


@pytest.mark.parametrize("where", [(1,), (slice(None), slice(2, 4)), (0, 3), (1, 5, 2)])
def test_a_lie_in_some_rollouts_is_soon_found(bench: Bench, where: object) -> None:
    bench.until_it_serves()
    bench.lie, rollouts, wrong = off(where), 12, torch.zeros(2, 6, 4)
    wrong[where] = 1
    share = float(wrong.amax(dim=2).mean())
    served = sum(not bench.agrees(seed) for seed in range(2 * rollouts))
    assert served < 2 / share
    assert (bench.ended("differs"), bench.serving()) == (1, 0)


def test_answers_that_agree_go_on_being_served(bench: Bench) -> None:
    bench.until_it_serves()
    calls = bench.calls
    assert all(bench.agrees(seed) for seed in range(16))
    assert bench.calls == calls + 16
    assert bench.serving() == 1


@pytest.mark.parametrize(
    ("lie", "reason"),
    [(lambda x: x * (1 + 1e-3), "differs"), (lambda x: x * torch.nan, "not_finite")],
)
def test_a_path_that_is_wrong_at_first_never_serves(bench: Bench, lie: Lie, reason: str) -> None:
    bench.lie = lie
    wait_until(lambda: bench.agrees(1, 0.0) and bench.ended(reason) == 1)
    assert bench.serving() == 0


def test_a_path_that_raises_is_answered_eagerly(bench: Bench) -> None:
    def broken(_: Tensor) -> Tensor:
        raise RuntimeError("a kernel that cannot")

    bench.until_it_serves()
    bench.lie = broken
    assert bench.agrees(2, 0.0)
    assert bench.ended("raised") == 1


def test_pools_cut_from_larger_ones_have_the_layout_that_was_compiled(bench: Bench) -> None:
    """A pool a history, too large for one device call: its parts are strided."""
    bench.until_it_serves(candidates=512, pools=2)
    calls = bench.calls
    assert bench.agrees(2, candidates=1024, pools=2)
    assert bench.calls == calls + 2, "both halves went down the path"


def test_shapes_that_take_turns_are_made_one_at_a_time_and_keep_their_places(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More shapes than places: threads do not pile up, and what is made is not dropped for them."""
    monkeypatch.setattr(fast_paths, "MAX_PATHS", 2)
    monkeypatch.setattr(fast_paths, "MAX_KEYS", 5)
    monkeypatch.setattr(fast_paths, "STALE", 12)
    go_on, compiling = threading.Event(), fast_paths.compile_module
    made: list[int] = []

    def slowly(
        module: nn.Module, inputs: tuple[Tensor, ...], folder: Path, threads: int, *, reduced: bool
    ) -> fast_paths.Compute:
        made.append(1)
        assert go_on.wait(GENEROUS_SECONDS)
        return compiling(module, inputs, folder, threads, reduced=reduced)

    def agree(*counts: int) -> bool:
        return all(bench.agrees(1, candidates=count) for count in counts)

    monkeypatch.setattr(fast_paths, "compile_module", slowly)
    assert agree(2, 3, 4, 5, 2, 3, 4, 5)
    assert sum(thread.name == "compiler" for thread in threading.enumerate()) == len(made) == 1
    go_on.set()
    wait_until(lambda: agree(2, 3, 4, 5) and bench.serving() == 2)
    assert agree(2, 3, 4, 5, 6, 7, 8)
    assert (len(made), bench.serving()) == (2, 2), "the two that came first stay"
    # Those that nobody asks for any more make room.
    wait_until(lambda: agree(9, 10) and len(made) == 4 and bench.serving() == 2)


def test_a_compiler_that_cannot_be_started_costs_no_answer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread left, no folder for files, a fault of a plug-in's network: eager, and no more."""

    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        assert bench.agrees(1, 0.0)
    for place, fault in enumerate((KeyError("torch"), OSError(28, "No space left on device"))):

        def broken(*_: object, fault: Exception = fault, **__: object) -> object:
            raise fault

        monkeypatch.setattr(fast_paths.tempfile, "TemporaryDirectory", broken)
        assert bench.agrees(1, 0.0, candidates=9 + place)
        wait_until(lambda: all(thread.name != "compiler" for thread in threading.enumerate()))
    monkeypatch.undo()
    bench.engine.close()


COMPILES = """
import subprocess, sys
from pathlib import Path
import torch
from acpc_server.engine import compiler

folder = Path(sys.argv[2])

class Network(torch.nn.Module):
    def forward(self, x):
        if sys.argv[1] == "fails":
            raise KeyError("a plug-in's fault")
        with subprocess.Popen(["sleep", "300"]):  # a compiler
            Path(f"{folder}.begun").touch()

if __name__ == "__main__":
    if sys.argv[1] == "is late":
        process = compiler.multiprocessing.process.BaseProcess
        join = process.join
        def until_begun(child, seconds=None):
            while seconds and not Path(f"{folder}.begun").exists():
                join(child, 0.05)
            join(child, 0 if seconds else None)
        process.join = until_begun
    folder.mkdir()
    try:
        compiler.compile_module(Network(), (torch.ones(1, 8),), folder, 1, reduced=False)
    except compiler.CompilationFailed as error:
        print(error)
"""


@contextmanager
def compiling(folder: Path, what: str) -> Iterator[subprocess.Popen[str]]:
    """A program whose compilation hangs, is late or fails; its output ends with all it started."""
    (folder / "compiles.py").write_text(COMPILES)
    command = [sys.executable, folder / "compiles.py", what, folder / "compiled"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with processes.running(command, **pipes) as program:
        yield program


@pytest.mark.process
def test_a_compiler_ends_with_its_server_and_leaves_nothing(tmp_path: Path) -> None:
    with compiling(tmp_path, "hangs") as server:
        wait_until((tmp_path / "compiled.begun").exists)
        server.kill()
        server.communicate(timeout=GENEROUS_SECONDS)
    assert not (tmp_path / "compiled").exists()


@pytest.mark.process
def test_a_compiler_that_is_late_is_ended_with_what_it_started(tmp_path: Path) -> None:
    with compiling(tmp_path, "is late") as server:
        said, _ = server.communicate(timeout=GENEROUS_SECONDS)
    assert "had not ended after" in said


@pytest.mark.process
def test_a_compiler_that_fails_says_why_and_no_more(tmp_path: Path) -> None:
    with compiling(tmp_path, "fails") as server:
        said, _ = server.communicate(timeout=GENEROUS_SECONDS)
    assert said.startswith("the compiling process ended with 1: ")
    assert "a plug-in's fault" in said
    assert "Traceback" not in said


def test_a_network_that_cannot_be_sent_to_the_compiler_stays_eager(tmp_path: Path) -> None:
    class Local(nn.Module):
        pass

    with pytest.raises(CompilationFailed, match="sent"):
        compile_module(Local(), pool(1), tmp_path, 1, reduced=False)


class _Sent:
    """A process that is only sent its arguments, as ``multiprocessing`` sends them."""

    exitcode = 1

    def __init__(self, *, args: tuple[object, ...], **_: object) -> None:
        self._args = args

    def start(self) -> None:
        ForkingPickler.dumps(self._args)

    def join(self, _: float | None = None) -> None:
        """Nothing runs."""

    def is_alive(self) -> bool:
        return False


def test_weights_stay_where_they_are_while_the_compiler_gets_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The device's thread computes with them meanwhile: moved and freed, they would be NaN."""
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: SimpleNamespace(Process=_Sent))
    network = nn.Linear(8, 8)
    before = [x.data_ptr() for x in network.parameters()]
    with pytest.raises(CompilationFailed, match="ended with 1"):
        compile_module(network, (torch.ones(1, 8),), tmp_path, 1, reduced=False)
    assert [x.data_ptr() for x in network.parameters()] == before
    assert not any(x.is_shared() for x in network.parameters())
