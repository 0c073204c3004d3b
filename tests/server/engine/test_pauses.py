"""Interactive work goes between the operations of a job's device call, and changes no bit of it."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient, DeviceContext
from acpc_server.engine.host import THREADED_WORK
from acpc_server.errors import DeviceFailed
from acpc_server.models import sample_model
from acpc_server.observe import Metrics
from acpc_server.scheduling import Chunk, Priority, RequestContext, pause
from plain_model import CARD, PlainModel, frames
from torch import Tensor
from waiting import GENEROUS_SECONDS, wait_until

CPU, FP32 = torch.device("cpu"), NumericMode.FP32
THREADS = 2
OF_JOB, OF_REQUEST = 1.0, 2.0


class LargeModel(PlainModel):
    """One whose calls are worth several threads."""

    card = replace(CARD, parameter_count=int(THREADED_WORK) * 100)


class PausingDevice:
    """An engine whose jobs never wait too long, and callers in threads of their own."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.failures: list[str] = []
        failed = self.failures.append
        self.engine = DeviceClient(CPU, self.metrics, threads=THREADS, on_failed=failed)
        self.callers = ThreadPoolExecutor(4)

    def ask(self, model: PlainModel, priority: Priority, mark: float) -> Future[Tensor]:
        context = RequestContext(priority, GENEROUS_SECONDS)
        given = model, frames(mark), context, FP32
        return self.callers.submit(self.engine.encode, *given)  # type: ignore[arg-type]

    def beside_a_job(self, between: Callable[[Tensor], None]) -> tuple[Future[Tensor], ...]:
        """A job's call and a request that comes while it computes, which ``between`` is called in.

        The job's call goes on once the request has been taken.
        """
        asked: list[Future[Tensor]] = []
        waiting = self.engine._queue._waiting[Priority.INTERACTIVE]

        def computing(_: Tensor) -> None:
            asked.append(self.ask(LargeModel(between), Priority.INTERACTIVE, OF_REQUEST))
            wait_until(lambda: waiting)
            wait_until(lambda: pause() or not waiting)

        job = self.ask(PlainModel(computing), Priority.JOB, OF_JOB)
        job.exception(GENEROUS_SECONDS)
        return job, asked[0]

    def seconds(self, priority: str) -> float:
        labels = {"primitive": "encode", "priority": priority}
        name = "acpc_compute_seconds_sum"
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
def pausing(monkeypatch: pytest.MonkeyPatch) -> Iterator[PausingDevice]:
    monkeypatch.setattr("acpc_server.scheduling.queue.MAX_JOB_WAIT", 2 * GENEROUS_SECONDS)
    made = PausingDevice()
    yield made
    made.engine.close()
    made.callers.shutdown()


def test_a_request_is_answered_in_the_middle_of_a_jobs_call(pausing: PausingDevice) -> None:
    """On all of the device's threads, though the job's own call is a small one."""
    counts: list[int] = []
    job, request = pausing.beside_a_job(lambda _: counts.append(torch.get_num_threads()))
    assert (request.result(GENEROUS_SECONDS) == OF_REQUEST).all()
    assert (job.result() == OF_JOB).all()
    assert counts == [THREADS]


def test_a_request_amid_a_jobs_call_is_computed_as_between_two_calls(
    pausing: PausingDevice,
) -> None:
    """A plug-in's perturbation may multiply, and must not get bfloat16 from a job beside it."""
    seen: list[tuple[bool, ...]] = []

    def look(_: list[None]) -> list[None]:
        on = torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled()
        seen.append((*on, torch.is_grad_enabled()))
        return [None]

    def chunk() -> Chunk:
        context = RequestContext(Priority.INTERACTIVE)
        return Chunk("pair", "kind", None, 1, look, context, False, 1)

    def computing(_: Tensor) -> None:
        assert torch.is_autocast_enabled("cpu")
        pausing.engine._queue.put(one := chunk())
        wait_until(lambda: pause() or one.future.done())
        assert torch.is_autocast_enabled("cpu")

    pausing.engine._queue.put(alone := chunk())
    alone.future.result(GENEROUS_SECONDS)
    job = RequestContext(Priority.JOB)
    given = PlainModel(computing), frames(OF_JOB), job, NumericMode.BF16
    pausing.callers.submit(pausing.engine.encode, *given).result(GENEROUS_SECONDS)  # type: ignore[arg-type]
    assert seen == [(False, False, True)] * 2


def test_a_jobs_call_took_only_its_own_time(pausing: PausingDevice) -> None:
    began = time.perf_counter()
    pausing.beside_a_job(lambda _: time.sleep(0.2))
    wait_until(lambda: pausing.seconds("job") > 0)
    taken = pausing.seconds("job") + pausing.seconds("interactive")
    assert taken <= time.perf_counter() - began


def test_a_device_that_fails_in_between_fails_all(pausing: PausingDevice) -> None:
    def fail(_: Tensor) -> None:
        raise DeviceFailed("broken")

    for answer in pausing.beside_a_job(fail):
        assert isinstance(answer.exception(GENEROUS_SECONDS), DeviceFailed)
    assert len(pausing.failures) == 1


def test_a_bug_in_between_is_its_callers_alone(pausing: PausingDevice) -> None:
    def fail(_: Tensor) -> None:
        raise ValueError("a bug")

    job, request = pausing.beside_a_job(fail)
    assert isinstance(request.exception(GENEROUS_SECONDS), ValueError)
    assert (job.result() == OF_JOB).all()


class Interrupted:
    """A sample network, of whose every call that may be interrupted every pause is used."""

    def __init__(self, pausing: PausingDevice, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine, self.model = pausing.engine, sample_model(CPU)
        self.times, self._on = 0, True
        monkeypatch.setattr(pausing.engine._queue, "take_between", self._take)

    def _take(self) -> list[Chunk]:
        if not self._on:
            return []
        self.times += 1
        context = RequestContext(Priority.INTERACTIVE)
        return [Chunk("pair", "kind", None, 1, self._other, context, False, 1)]

    def _other(self, _: list[None]) -> list[Tensor]:
        return [self.all(DeviceContext(), seed=1)]

    def all(self, context: RequestContext, seed: int = 0) -> Tensor:
        """Latents of some frames, and rollouts from them."""
        card, random = self.model.card, torch.Generator().manual_seed(seed)
        side = card.image_size
        given = torch.randn(2 * card.history, 3, side, side, generator=random)
        blocks = torch.randn(2, card.history + 2, card.action_block_dim, generator=random)
        latents = self.engine.encode(self.model, given, context, FP32)
        histories = latents.unflatten(0, (2, card.history))
        rolled = self.engine.rollout(self.model, histories, blocks, context, FP32)
        return torch.cat([latents, rolled.flatten(0, 1)])

    def undisturbed(self) -> Tensor:
        """The same as :meth:`all` for a job, with nothing in between."""
        self._on = False
        found = [self.all(RequestContext(Priority.JOB)) for _ in range(2)][1]
        self._on = True
        return found


@pytest.fixture
def interrupted(pausing: PausingDevice, monkeypatch: pytest.MonkeyPatch) -> Interrupted:
    return Interrupted(pausing, monkeypatch)


def test_a_job_that_is_interrupted_gives_equal_bytes(interrupted: Interrupted) -> None:
    wanted = interrupted.undisturbed()
    assert torch.equal(interrupted.all(RequestContext(Priority.JOB)), wanted)
    assert interrupted.times > 4, "in every layer of the encoder, and of every step"


def test_no_request_is_interrupted_and_no_derivative(interrupted: Interrupted) -> None:
    interrupted.all(RequestContext(Priority.INTERACTIVE))
    card = interrupted.model.card
    histories = torch.zeros(1, card.history, 3, card.image_size, card.image_size)
    blocks = torch.zeros(1, card.history, card.action_block_dim)
    context = RequestContext(Priority.JOB)
    given = histories, torch.ones_like(histories), blocks, context
    interrupted.engine.rollout_tangent(interrupted.model, *given)
    assert interrupted.times == 0
