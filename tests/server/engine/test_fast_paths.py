"""A pool shape that keeps coming gets a fast path, and no answer of it is served unwatched."""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace

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
from waiting import wait_until

CPU = torch.device("cpu")
SECONDS = 840.0  # a compiler beside eight busy processes takes minutes
Lie = Callable[[Tensor], Tensor]
EVERY = 8  # one answer in so many is compared; 256 would take the tests seconds
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
        monkeypatch.setattr(fast_paths, "EVERY", EVERY)

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
    model: FrozenWorldModel, mode: NumericMode, tolerance: float
) -> None:
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


def test_an_answer_a_little_off_is_found_by_comparing(bench: Bench) -> None:
    bench.until_it_serves()
    bench.lie = lambda answer: answer * (1 + 1e-3)
    served = sum(1 for seed in range(EVERY) if not bench.agrees(seed))
    assert served < EVERY
    assert (bench.ended("differs"), bench.serving()) == (1, 0)
    assert bench.agrees(1, 0.0)


def test_answers_that_agree_go_on_being_served(bench: Bench) -> None:
    bench.until_it_serves()
    calls = bench.calls
    assert all(bench.agrees(seed) for seed in range(2 * EVERY))
    assert bench.calls == calls + 2 * EVERY
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

    def join(self) -> None:
        """Nothing runs."""


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
