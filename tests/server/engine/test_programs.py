"""Programs of a shape, compiled or captured: compared with eager, then trusted, or never used."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient, DeviceContext, graphs
from acpc_server.engine.accelerator import WARM_UP, DeviceGraphs, capture
from acpc_server.engine.graphs import AFTER, AFTER_OF_JOB, Graphs
from acpc_server.engine.owner import DeviceCall
from acpc_server.engine.programs import StepPrograms, pays, private_folder, program_key, spec_of
from acpc_server.models import (
    Form,
    FrozenJepa,
    JepaRollout,
    captured_form,
    predict_step,
    rollout,
    sample_model,
)
from acpc_server.models.loader import load_checkpoint
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from graphed import CPU, FP32, Graphed, Lie
from public_checkpoint import public_config, write_checkpoint
from torch import Tensor
from torch.profiler import profile


def steps() -> JepaRollout:
    found = sample_model(CPU).steps
    assert found is not None
    return found


def window(rollout: JepaRollout, g: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, g, n, 32), rollout.modulate(torch.randn(3, 1, n, 32))


def test_a_key_is_of_an_architecture_not_of_its_weights() -> None:
    rollout = steps()
    spec = spec_of(rollout)
    rollout.weights[0].add_(1.0)
    assert json.loads(json.dumps(spec)) == spec == spec_of(rollout), "it travels as JSON"
    assert program_key(spec) != program_key(spec | {"form": [*Form(1)]})


@pytest.mark.parametrize(
    ("rows", "paid"), [(1, True), (2, True), (15, True), (16, False), (128, True), (1300, False)]
)
def test_a_program_serves_where_it_wins_and_holds_the_interpreter_shortly(
    rows: int, paid: bool
) -> None:
    took = {2: [0.4, 0.05], 16: [0.5, 0.45], 128: [1.5, 1.0]}
    assert pays(took, rows) is paid


@pytest.mark.parametrize("rows", [(1, 2), (3, 40)])
def test_attention_by_elements_or_fused_is_one_step(rows: tuple[int, int]) -> None:
    rollout = steps()
    given = window(rollout, *rows)
    ways = [predict_step(rollout.weights, rollout.form, *given, least) for least in (0, 10**9)]
    torch.testing.assert_close(*ways)
    torch.testing.assert_close(rollout.step(*given), ways[0])


def test_a_folder_that_others_may_use_is_refused(tmp_path: Path) -> None:
    made = private_folder(tmp_path / "state" / "programs")
    assert made.stat().st_mode & 0o777 == 0o700 and private_folder(made) == made
    made.chmod(0o770)
    (tmp_path / "link").symlink_to(tmp_path / "state")
    for folder in (made, tmp_path / "link"):
        with pytest.raises(PermissionError, match="others may use"):
            private_folder(folder)


class World:
    def __init__(self, folder: Path, after: float = math.inf) -> None:
        self.metrics, self.model = Metrics(), sample_model(CPU)
        self.programs = StepPrograms(self.metrics, folder, after)
        self.folder, self.key = folder, program_key(spec_of(steps()))

    def put(self, library: bytes, **about: object) -> None:
        known = {"sha256": hashlib.sha256(library).hexdigest(), "rows": {"2": [9, 1]}, "seconds": 1}
        (self.folder / f"{self.key}.so").write_bytes(library)
        (self.folder / f"{self.key}.json").write_text(json.dumps(known | about))

    def ask(self, priority: Priority = Priority.INTERACTIVE) -> str | None:
        context = RequestContext(priority)
        given = torch.randn(2, 3, 32), torch.randn(2, 2, 4), torch.randn(2, 1, 5, 4)
        with self.programs.serve(self.model, FP32, context, rows=2), torch.inference_mode():
            found = self.model.unroll(*given)
        assert torch.equal(found, self.model.unroll(*given)), "eager, whatever lies there"
        return context.program

    def rejected(self, reason: str) -> float | None:
        labels = {"reason": reason}
        return self.metrics.registry.get_sample_value("acpc_programs_rejected_total", labels)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(private_folder(tmp_path / "programs"))
    yield world
    world.programs.close()


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({}, "raised"),  # no program at all
        ({"sha256": "0" * 64}, "corrupt"),  # and these are not what was compiled: never loaded
        ({"rows": {}}, "corrupt"),
        ({"rows": [1]}, "corrupt"),
        ({"rows": {"2": 1}}, "corrupt"),
    ],
)
def test_what_lies_in_the_folder_and_is_no_program_never_serves(
    world: World, about: dict[str, object], reason: str
) -> None:
    world.put(b"\x7fELF", **about)
    assert [world.ask() for _ in range(3)] == ["", "", ""]
    for one in ("raised", "corrupt"):
        assert world.rejected(one) == (1.0 if one == reason else None)
    assert reason == "raised" or not (world.folder / f"{world.key}.json").exists()


def test_a_link_is_never_followed(world: World, tmp_path: Path) -> None:
    world.put(b"\x7fELF")
    library = world.folder / f"{world.key}.so"
    library.rename(tmp_path / "elsewhere")
    library.symlink_to(tmp_path / "elsewhere")
    assert world.ask() == "" and world.rejected("corrupt") == 1.0


def test_jobs_and_other_arithmetic_have_none(world: World) -> None:
    world.put(b"\x7fELF")
    assert world.ask(Priority.JOB) is None and world.rejected("raised") is None


def test_where_nothing_can_be_written_eager_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: the caller's answer does not depend on it."""
    monkeypatch.setenv("CXX", "true")
    (tmp_path / "programs").write_bytes(b"no folder")
    world = World(tmp_path / "programs", after=0.0)
    assert [world.ask() for _ in range(3)] == ["", "", ""]
    assert world.rejected("not_compiled") == 1.0


def test_a_shape_that_comes_often_is_served_by_its_graph() -> None:
    device = Graphed()
    assert all(device.ask() for _ in range(AFTER + 1))
    assert (device.captured, device.replayed) == (1, 1), "compared with other inputs than captured"
    assert device.value("acpc_graphs") == 1
    assert all(device.ask() for _ in range(5))
    assert device.replayed == 6 and device.graphs.replayed, "which receipts name"


@pytest.mark.parametrize(
    ("context", "captured"),
    [
        (RequestContext(Priority.INTERACTIVE), 2),
        (DeviceContext(alone=True), 2),
        (DeviceContext(alone=False), 0),
    ],
    ids=["request", "alone", "shared"],
)
def test_frames_and_pools_of_one_request_are_captured_and_no_others(
    model: FrozenJepa, context: RequestContext, captured: int
) -> None:
    device = Graphed()
    engine = DeviceClient(CPU, device.metrics)
    engine.owner.graphs = device.graphs
    frames, past, pool = torch.randn(3, 3, 28, 28), torch.zeros(2, 10), torch.randn(1, 5, 2, 10)
    try:
        for _ in range(AFTER + 2):
            latents = engine.encode(model, frames, context, FP32)
            ends = engine.rollout_pool(model, latents[None], past, pool, context, FP32)
    finally:
        engine.close()
    assert device.captured == captured and device.replayed == 2 * captured
    assert (context.program == "graph") is bool(captured)
    assert torch.equal(latents, model.encode(frames)) and ends.shape == (1, 5, 2, 16)


def test_where_memory_runs_out_graphs_give_theirs_back_and_come_again(model: FrozenJepa) -> None:
    device, context, frames = Graphed(), DeviceContext(), torch.randn(1, 3, 28, 28)
    engine = DeviceClient(CPU, device.metrics)
    engine.owner.graphs = device.graphs

    def full(_: Tensor) -> Tensor:
        raise torch.OutOfMemoryError

    try:
        for captured in (1, 2):
            for _ in range(AFTER + 1):
                engine.encode(model, frames, context, FP32)
            assert (device.captured, device.value("acpc_graphs")) == (captured, 1)
            with pytest.raises(torch.OutOfMemoryError):
                engine.owner.compute(DeviceCall("encode", FP32, 1.0, context), full, frames)
            assert device.value("acpc_graphs") == 0
    finally:
        engine.close()


def test_a_thread_that_cannot_draw_has_the_graphs_give_theirs_back() -> None:
    device = Graphed()
    engine = DeviceClient(CPU, device.metrics)
    engine.owner.graphs = device.graphs
    try:
        assert all(device.ask() for _ in range(AFTER + 1))
        with pytest.raises(torch.OutOfMemoryError), engine.drawing(0.0, DeviceContext()):
            raise torch.OutOfMemoryError
        assert device.ask() and device.value("acpc_graphs") == 0
    finally:
        engine.close()


def broken(_: Tensor) -> Tensor:
    raise RuntimeError("a kernel that cannot")


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (lambda x: x * (1 + 1e-3), "differs"),
        (lambda x: x * torch.nan, "differs"),
        (broken, "raised"),
    ],
)
def test_a_graph_that_differs_or_raises_never_serves(lie: Lie, reason: str) -> None:
    device = Graphed(lie)
    assert all(device.ask() for _ in range(3 * AFTER))
    assert (device.captured, device.replayed) == (1, 1)
    assert device.value("acpc_graphs_rejected_total", reason=reason) == 1
    assert device.value("acpc_graphs") == 0


def test_a_jobs_graph_is_captured_later_and_serves_only_with_equal_bits() -> None:
    """So that a job's bytes are those of its first run, when nothing was captured."""
    device = Graphed()
    assert all(device.ask(exact=True) for _ in range(AFTER_OF_JOB + 3))
    assert (device.captured, device.replayed) == (1, 3)
    device = Graphed(lambda x: x * (1 + 1e-7))
    assert all(device.ask(exact=True) for _ in range(AFTER_OF_JOB + 3))
    assert (device.captured, device.replayed) == (1, 1)


def test_what_a_tie_may_turn_is_not_compared() -> None:
    device = Graphed(lambda x: x + torch.tensor([0.0, 0.0, 1.0]))
    for _ in range(AFTER + 1):
        device.graphs.compute(lambda x: x.clone(), "digest", FP32, torch.ones(3), chosen=1)
    assert device.value("acpc_graphs") == 1


def test_infinite_margins_are_compared_as_they_are() -> None:
    device, rows = Graphed(), torch.tensor([1.0, math.inf, -math.inf])
    for _ in range(AFTER + 1):
        device.graphs.compute(lambda x: x.clone(), "digest", FP32, rows)
    assert device.value("acpc_graphs") == 1


def test_a_jobs_calls_are_captured_and_keep_their_bits(model: FrozenJepa) -> None:
    device, context = Graphed(), RequestContext(Priority.JOB)
    engine = DeviceClient(CPU, device.metrics)
    engine.owner.graphs = device.graphs
    frames, histories, blocks = (torch.randn(*s) for s in ((3, 3, 28, 28), (4, 3, 16), (4, 5, 10)))
    try:
        for _ in range(AFTER_OF_JOB + 3):
            latents = engine.encode(model, frames, context, FP32)
            found = engine.rollout(model, histories, blocks, context, FP32)
    finally:
        engine.close()
    assert (device.captured, device.replayed) == (2, 6)
    assert torch.equal(latents, model.encode(frames))
    assert torch.equal(found, rollout(model, histories, blocks))


@pytest.mark.parametrize("mode", [NumericMode.BF16, NumericMode.TF32])
def test_a_mode_may_differ_by_its_rounding_and_float64_has_no_graphs(mode: NumericMode) -> None:
    device = Graphed(lambda x: x * (1 + 1e-3))
    for _ in range(AFTER + 1):
        device.ask(mode=mode)
        assert device.ask(mode=NumericMode.FP64)
    assert (device.captured, device.value("acpc_graphs")) == (1, 1)


def test_the_graphs_used_the_longest_ago_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_GRAPHS", 2)
    monkeypatch.setattr(graphs, "MAX_SHAPES", 4)
    device = Graphed()
    for count in range(1, 8):
        assert all(device.ask(count) for _ in range(AFTER + 1))
        assert device.value("acpc_graphs") == min(count, 2)


def test_a_device_without_graphs_answers_eagerly() -> None:
    assert not Graphs(CPU, Metrics()).wanted


class Recording(DeviceGraphs):
    """Replays as graphs do, into the memory of the capture."""

    def __init__(self) -> None:
        self.aside_calls, self.recorded = 0, 0

    def aside(self, work: Callable[[], object]) -> None:
        self.aside_calls += 1
        assert not self.recorded, "warmed up before the capture"
        work()

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self.recorded += 1
        out = work()
        return lambda: out.copy_(work()), out


def test_answers_belong_to_their_own_inputs_and_to_nobody_else() -> None:
    device, cached = Recording(), list[bool]()

    def compute(a: Tensor, b: Tensor) -> Tensor:
        cached.append(torch.is_autocast_cache_enabled())
        return a @ b

    inputs = [(torch.randn(3, 4), torch.randn(4, 2)) for _ in range(3)]
    fast = capture(compute, inputs[0], device=device)
    assert (device.aside_calls, device.recorded) == (1, 1)
    assert cached == [False] * (WARM_UP + 1), "a cached cast would not be in the graph"
    assert torch.is_autocast_cache_enabled()
    answers = [fast(*pair) for pair in inputs]
    for answer, (a, b) in zip(answers, inputs, strict=True):
        torch.testing.assert_close(answer, a @ b)
    inputs[0][0].zero_()
    torch.testing.assert_close(fast(*inputs[1]), answers[1])


@pytest.mark.parametrize("fails", [False, True])
def test_a_capture_has_a_stream_of_its_own_device_and_leaves_it(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """As torch does it: made on the current device, and not left where a capture cannot end."""
    devices, streams, made = [0], ["own"], list[int]()

    @contextmanager
    def device(given: torch.device) -> Iterator[None]:
        devices.append(given.index)
        yield
        devices.pop()

    class Graph:
        def __init__(self, *_: object, **__: object) -> None:
            made.append(devices[-1])

        def __enter__(self) -> None:
            streams.append("graph")

        def __exit__(self, *_: object) -> None:
            if fails:
                raise RuntimeError("operation failed due to a previous error during capture")
            streams.append("own")

    stubs = {"device": device, "graph": Graph, "CUDAGraph": Mock, "set_stream": streams.append}
    for name, stub in {**stubs, "current_stream": lambda _: streams[-1]}.items():
        monkeypatch.setattr(torch.cuda, name, stub)
    with pytest.raises(RuntimeError) if fails else nullcontext():
        DeviceGraphs(torch.device("cuda", 1)).record(lambda: torch.zeros(1))
    assert (made, streams[-1]) == ([1], "own")


@pytest.mark.parametrize("rows", [2, 20])
def test_the_form_for_a_capture_computes_the_same(tmp_path: Path, rows: int) -> None:
    """Products in parts, of whatever layout attention leaves."""
    write_checkpoint(tmp_path / "model", public_config("paper"))
    model = load_checkpoint(tmp_path, "model", device=CPU)
    histories, blocks = torch.randn(rows, 3, 192), torch.randn(rows, 5, 10)
    with profile() as before:
        eager = rollout(model, histories, blocks)
    with captured_form(), profile() as seen:
        found = rollout(model, histories, blocks)
    products = [sum(x.name == "aten::bmm" for x in one.events()) for one in (before, seen)]
    assert products[0] < products[1], "in parts"
    torch.testing.assert_close(found, eager, rtol=0, atol=1e-5 * float(eager.abs().max()))
    assert torch.equal(rollout(model, histories, blocks), eager)


def test_a_capture_that_fails_leaves_the_cache_of_autocast_on() -> None:
    with pytest.raises(RuntimeError, match="cannot"):
        capture(broken, (torch.zeros(1),), device=Recording())
    assert torch.is_autocast_cache_enabled()
