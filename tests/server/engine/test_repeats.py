"""A pool shape that keeps coming is compiled, and the compiled answer is the eager one."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceEngine
from acpc_server.engine.compiled import RepeatedPools
from acpc_server.engine.compiler import CompilationFailed, compile_pool
from acpc_server.models import FrozenWorldModel, rollout_pool
from acpc_server.models.loader import load_checkpoint
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from plain_model import PlainModel
from programs import required
from public_checkpoint import write_checkpoint

CPU = torch.device("cpu")
SECONDS = 840.0  # a compiler beside eight busy processes takes minutes


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> FrozenWorldModel:
    root = tmp_path_factory.mktemp("checkpoints")
    write_checkpoint(root / "model")
    return load_checkpoint(root, "model", device=CPU)


def pool(seed: int, candidates: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(2, 3, 16, generator=generator),
        torch.randn(2, 10, generator=generator),
        torch.randn(1, candidates, 4, 10, generator=generator),
    )


def compiled_shapes(metrics: Metrics) -> float:
    value = metrics.registry.get_sample_value("acpc_compiled_pools")
    assert value is not None
    return value


def ask(
    engine: DeviceEngine, model: FrozenWorldModel, seed: int, priority: Priority, **shape: int
) -> torch.Tensor:
    histories, past, pools = pool(seed, **shape)
    return engine.rollout_pool(
        model, histories, past, pools, RequestContext(priority), NumericMode.FP32
    )


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("g++") is None and not required("g++"),
    reason="needs a C++ compiler: apt install g++",
)
def test_a_repeated_shape_is_compiled_and_agrees(model: FrozenWorldModel) -> None:
    metrics = Metrics()
    engine = DeviceEngine(CPU, metrics, threads=1, compile_after=2)
    job = ask(engine, model, 5, Priority.JOB)
    give_up = time.monotonic() + SECONDS
    while compiled_shapes(metrics) == 0:
        assert time.monotonic() < give_up, "the pool was never compiled"
        ask(engine, model, 1, Priority.INTERACTIVE)
        time.sleep(0.2)
    for seed in (2, 3):  # other values than those it was compiled and checked with
        fast = ask(engine, model, seed, Priority.INTERACTIVE)
        eager = rollout_pool(model, *pool(seed))
        assert torch.allclose(fast, eager, rtol=1e-5, atol=1e-5 * float(eager.abs().max()))
    other = ask(engine, model, 4, Priority.INTERACTIVE, candidates=5)
    torch.testing.assert_close(other, rollout_pool(model, *pool(4, candidates=5)))
    again = ask(engine, model, 5, Priority.JOB)
    assert torch.equal(job, again), "a job's bytes do not change"
    engine.close()


def test_an_answer_that_differs_is_never_served(model: FrozenWorldModel) -> None:
    """A rollout that is off, or not finite, is dropped at its first use and stays dropped."""
    for wrong in (lambda x: x * (1 + 1e-3), lambda x: x * torch.nan):
        metrics = Metrics()
        pools = RepeatedPools(CPU, metrics, after=1, threads=1)
        inputs = pool(7)
        key = (model.card.digest, NumericMode.FP32, *(tuple(x.shape) for x in inputs))
        shape = pools._remember(key)
        shape.fast = lambda *x, wrong=wrong: wrong(rollout_pool(model, *x))
        eager = rollout_pool(model, *inputs)
        for _ in range(3):
            assert torch.equal(pools.rollout(model, inputs, NumericMode.FP32), eager)
        assert compiled_shapes(metrics) == 0


def test_a_family_that_hides_its_network_stays_eager(tmp_path: Path) -> None:
    with pytest.raises(CompilationFailed, match="network"):
        compile_pool(PlainModel(), pool(1), tmp_path, 1)


def test_a_network_that_cannot_be_sent_to_the_compiler_stays_eager(tmp_path: Path) -> None:
    class Local(PlainModel):
        network = torch.nn.Linear(1, 1)

    with pytest.raises(CompilationFailed, match="sent"):
        compile_pool(Local(), pool(1), tmp_path, 1)
