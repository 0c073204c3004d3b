"""Fast paths for pools: a captured graph never answers unchecked, nor shares an answer."""

from collections.abc import Callable, Iterator

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient, fast_paths
from acpc_server.engine.accelerator import WARM_UP, Compute, DeviceGraphs, capture
from acpc_server.models import FrozenWorldModel, rollout_pool
from acpc_server.models.loader import load_checkpoint
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from public_checkpoint import write_checkpoint
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from waiting import wait_until

CPU = torch.device("cpu")
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
    engine: DeviceClient,
    model: FrozenWorldModel,
    inputs: tuple[Tensor, Tensor, Tensor],
    priority: Priority = Priority.INTERACTIVE,
    mode: NumericMode = NumericMode.FP32,
) -> Tensor:
    return engine.rollout_pool(model, *inputs, RequestContext(priority), mode)


class GraphDevice:
    """An engine whose device captures graphs, one of which lies from some answer on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, model: FrozenWorldModel) -> None:
        self.metrics = Metrics()
        self.model = model
        self.lie: Lie = TRUE
        self.calls = self.captured = 0
        self.engine = DeviceClient(CPU, self.metrics, threads=1, graph_after=1)
        monkeypatch.setattr(fast_paths, "capture", self._capture)

    def _capture(self, compute: Compute, inputs: tuple[Tensor, ...]) -> Compute:
        shapes = [x.shape for x in inputs]
        self.captured += 1

        def fast(*tensors: Tensor) -> Tensor:
            self.calls += 1
            # As a graph does: it reads the memory as it lay when it was captured.
            lain = [
                x.as_strided(shape, torch.empty(shape).stride())
                for x, shape in zip(tensors, shapes, strict=True)
            ]
            return self.lie(compute(*lain))

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
def graphed(monkeypatch: pytest.MonkeyPatch, model: FrozenWorldModel) -> Iterator[GraphDevice]:
    made = GraphDevice(monkeypatch, model)
    yield made
    made.engine.close()


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (lambda x: x * torch.nan, "not_finite"),
        (lambda x: x / 0, "not_finite"),
        (lambda x: x.clone().index_fill_(1, torch.tensor(3), torch.nan), "not_finite"),
        (lambda x: x * 1e3, "implausible"),
    ],
)
def test_an_answer_that_cannot_be_is_never_served(
    graphed: GraphDevice, lie: Lie, reason: str
) -> None:
    graphed.until_it_serves()
    assert graphed.agrees(2)
    graphed.lie = lie
    assert all(graphed.agrees(seed, 0.0) for seed in (3, 4)), "computed eagerly"
    assert (graphed.ended(reason), graphed.serving()) == (1, 0)
    graphed.lie, calls = TRUE, graphed.calls
    assert graphed.agrees(5, 0.0)
    assert graphed.calls == calls, "and the path is not asked again"


def off(where: object) -> Lie:
    """A little off, in some of an answer (histories, candidates, steps, dim)."""

    def lie(answer: Tensor) -> Tensor:
        wrong = answer.clone()
        wrong[where] *= 1 + 1e-3
        return wrong

    return lie


@pytest.mark.parametrize("where", [..., (..., slice(-1, None), slice(None)), (..., 5)])
def test_a_lie_in_every_rollout_is_never_served(graphed: GraphDevice, where: object) -> None:
    graphed.until_it_serves()
    assert graphed.agrees(2)
    graphed.lie = off(where)
    assert graphed.agrees(3, 0.0), "computed eagerly"
    assert (graphed.ended("differs"), graphed.serving()) == (1, 0)


@pytest.mark.parametrize("where", [(1,), (slice(None), slice(2, 4)), (0, 3), (1, 5, 2)])
def test_a_lie_in_some_rollouts_is_soon_found(graphed: GraphDevice, where: object) -> None:
    graphed.until_it_serves()
    graphed.lie, rollouts, wrong = off(where), 12, torch.zeros(2, 6, 4)
    wrong[where] = 1
    share = float(wrong.amax(dim=2).mean())
    served, seed = 0, 0
    while not graphed.ended("differs") and seed < 2 * rollouts:
        served, seed = served + (not graphed.agrees(seed)), seed + 1
    assert served < 2 / share
    assert (graphed.ended("differs"), graphed.serving()) == (1, 0)


def test_a_job_never_takes_a_fast_path(graphed: GraphDevice) -> None:
    """Its bytes must not depend on which pools came before."""
    graphed.until_it_serves()
    inputs, calls = pool(1), graphed.calls
    ask(graphed.engine, graphed.model, inputs, Priority.JOB)
    assert graphed.calls == calls


def test_answers_that_agree_go_on_being_served(graphed: GraphDevice) -> None:
    graphed.until_it_serves()
    calls = graphed.calls
    assert all(graphed.agrees(seed) for seed in range(6))
    assert graphed.calls == calls + 6
    assert graphed.serving() == 1


@pytest.mark.parametrize(
    ("lie", "reason"),
    [(lambda x: x * (1 + 1e-3), "differs"), (lambda x: x * torch.nan, "not_finite")],
)
def test_a_path_that_is_wrong_at_first_never_serves(
    graphed: GraphDevice, lie: Lie, reason: str
) -> None:
    graphed.lie = lie
    wait_until(lambda: graphed.agrees(1, 0.0) and graphed.ended(reason) == 1)
    assert graphed.serving() == 0


def test_a_path_that_raises_is_answered_eagerly(graphed: GraphDevice) -> None:
    def broken(_: Tensor) -> Tensor:
        raise RuntimeError("a kernel that cannot")

    graphed.until_it_serves()
    graphed.lie = broken
    assert graphed.agrees(2, 0.0)
    assert graphed.ended("raised") == 1


def test_pools_cut_from_larger_ones_have_the_layout_that_was_captured(graphed: GraphDevice) -> None:
    """A pool a history, too large for one device call: its parts are strided."""
    graphed.until_it_serves(candidates=512, pools=2)
    calls = graphed.calls
    assert graphed.agrees(2, candidates=1024, pools=2)
    assert graphed.calls == calls + 2, "both halves went down the path"


@pytest.mark.process
def test_more_shapes_than_places_keep_the_places_that_are_used(
    graphed: GraphDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_paths, "MAX_PATHS", 2)
    monkeypatch.setattr(fast_paths, "MAX_KEYS", 5)
    monkeypatch.setattr(fast_paths, "STALE", 8)

    def agree(*counts: int) -> bool:
        return all(graphed.agrees(1, candidates=count) for count in counts)

    assert all(agree(2, 3, 4, 5) for _ in range(4))
    assert graphed.serving() == 2
    assert agree(2, 3, 4, 5, 6, 7, 8)
    assert (graphed.captured, graphed.serving()) == (2, 2), "the two that came first stay"
    for _ in range(8):  # those that nobody asks for any more make room
        assert agree(9, 10)
    assert (graphed.captured, graphed.serving()) == (4, 2)


def test_a_device_without_graphs_answers_eagerly(model: FrozenWorldModel) -> None:
    engine = DeviceClient(CPU, Metrics(), threads=1, graph_after=1)
    inputs = pool(1)
    answers = [ask(engine, model, inputs) for _ in range(3)]
    assert all(torch.equal(answer, answers[0]) for answer in answers)
    engine.close()


class Recording(DeviceGraphs):
    """A device that keeps a log, and replays as graphs do: into the memory of the capture."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def aside(self, work: Callable[[], object]) -> None:
        self._log.append("aside")
        work()
        self._log.append("joined")

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self._log.append("record")
        out = work()
        self._log.append("recorded")

        def replay() -> None:
            self._log.append("replay")
            with torch.utils._python_dispatch._disable_current_modes():
                out.copy_(work())

        return replay, out


class Logged(TorchDispatchMode):
    """Logs copies and clones among what the device is asked."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self._log = log

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> object:  # noqa: ANN001
        name = str(func.overloadpacket).removeprefix("aten.")
        if name in ("copy_", "clone"):
            self._log.append(name)
        return func(*args, **(kwargs or {}))


def test_the_device_is_asked_in_this_order() -> None:
    log: list[str] = []
    cached: list[bool] = []

    def compute(a: Tensor, b: Tensor) -> Tensor:
        log.append("compute")
        cached.append(torch.is_autocast_cache_enabled())
        return a @ b

    a, b = torch.randn(3, 4), torch.randn(4, 2)
    with Logged(log):
        fast = capture(compute, (a, b), Recording(log))
        made = ["clone", "clone", "aside", *["compute"] * WARM_UP, "joined"]
        assert log == [*made, "record", "compute", "recorded"]
        log.clear()
        fast(a, b)
    assert log == ["copy_", "copy_", "replay", "compute", "clone"]
    assert cached[:-1] == [False] * (WARM_UP + 1), "a cached cast would not be in the graph"
    assert torch.is_autocast_cache_enabled()


def test_answers_belong_to_their_own_inputs_and_to_nobody_else() -> None:
    inputs = [(torch.randn(3, 4), torch.randn(4, 2)) for _ in range(3)]
    fast = capture(lambda a, b: a @ b, inputs[0], Recording([]))
    answers = [fast(*pair) for pair in inputs]
    for answer, (a, b) in zip(answers, inputs, strict=True):
        torch.testing.assert_close(answer, a @ b)
    inputs[0][0].zero_()
    torch.testing.assert_close(fast(*inputs[1]), answers[1])


def test_a_capture_that_fails_leaves_the_cache_of_autocast_on() -> None:
    def fail(*_: Tensor) -> Tensor:
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="capturing"):
        capture(fail, (torch.zeros(1),), Recording([]))
    assert torch.is_autocast_cache_enabled()


def test_a_device_without_graphs_says_so() -> None:
    with pytest.raises(RuntimeError, match="has no graphs of cpu"):
        DeviceGraphs(torch.device("cpu")).record(lambda: torch.zeros(1))
