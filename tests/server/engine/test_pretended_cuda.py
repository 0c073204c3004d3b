"""The device's code on a pretended CUDA device: nothing mixed, nothing waited for, few copies."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from acpc.contract import (
    Brightness,
    ColorJitter,
    Gamma,
    GaussianBlur,
    GaussianNoise,
    NumericMode,
    Occlusion,
    PerturbationSet,
    PoolRequest,
    RandomShift,
    Resize,
    Shadow,
    Views,
)
from acpc_server.encoding import HistoryEncoder, distinct_views
from acpc_server.engine import CachedCheckpoint, DeviceClient, DeviceContext
from acpc_server.engine.accelerator import to_device
from acpc_server.engine.arithmetic import load_derivatives
from acpc_server.interactive import Planner
from acpc_server.interactive.captured import PoolProgram, certify_captured
from acpc_server.models import FrozenJepa
from acpc_server.models.folder import CheckpointEntry
from acpc_server.models.loader import load_checkpoint
from acpc_server.numerics import consistency
from acpc_server.observe import Metrics
from pretended_cuda import CUDA, HiddenSynchronisation, MixedDevices, on_pretended, pretended_cuda
from public_checkpoint import public_config, write_checkpoint
from public_prejepa import TINY, public_prejepa, write_prejepa
from torch import Tensor

pytestmark = pytest.mark.process  # torch loads its fake tensors and derivatives for seconds
FRAMES, ROWS, VIEWS, CANDIDATES, STEPS, SIDE, DIM, WIDTH = 5, 4, 2, 6, 2, 28, 16, 10
MODES = [mode for mode in NumericMode if mode is not NumericMode.SERVER_DEFAULT]
KINDS_OF_PRODUCT = {NumericMode.BF16: torch.bfloat16, NumericMode.FP64: torch.float64}
PRODUCTS = ("linear", "matmul", "mm", "addmm", "bmm")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeviceClient]:
    """An engine whose device's thread is the test's: a pretended device is one thread's alone."""
    # It looks at rows on the host, which have no values here.
    monkeypatch.setattr("acpc_server.engine.client.equal_rows", lambda *_: None)
    monkeypatch.setattr("acpc_server.engine.owner.OtherModes.require", lambda *_: None)
    engine = DeviceClient(CUDA, Metrics())
    yield engine
    engine.close()


context = DeviceContext


def can_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the table of the normals on the device, and words of the generator's kernel."""
    table = torch.empty(2, 2**15 + 1, device=CUDA).unbind()
    monkeypatch.setattr("acpc_server.numerics.normals._table_on", lambda _: table)

    def words(counter: Tensor, **_: int) -> list[Tensor]:
        return [counter.clone() for _ in range(4)]

    monkeypatch.setattr("acpc_server.numerics.keyed_random._philox", lambda: words)


def patches(root: Path) -> FrozenJepa:
    write_prejepa(root / "model", TINY, public_prejepa(TINY))
    return load_checkpoint(root, "model", device=torch.device("cpu"))


@pytest.mark.parametrize(
    ("family", "mode"),
    # How a mode sets the type of products is the same for all models.
    [*(("lewm", mode) for mode in MODES), *(("prejepa", mode) for mode in KINDS_OF_PRODUCT)],
)
def test_a_device_call_is_one_copy_in_and_one_out(
    engine: DeviceClient, model: FrozenJepa, tmp_path: Path, family: str, mode: NumericMode
) -> None:
    load_derivatives()
    loaded = model if family == "lewm" else patches(tmp_path)
    card, wide = loaded.card, 8 if mode is NumericMode.FP64 else 4
    side, dim, width, past = card.image_size, card.latent_dim, card.action_block_dim, 2
    given = (
        torch.zeros(FRAMES, 3, side, side),
        torch.zeros(ROWS, past + 1, dim), torch.zeros(ROWS, past + STEPS, width),
        torch.zeros(VIEWS, past + 1, dim), torch.zeros(past, width),
        torch.zeros(1, CANDIDATES, STEPS, width),
    )  # fmt: skip
    frames, histories, blocks, views, shared, pool = given
    with pretended_cuda() as watch:
        there = on_pretended(loaded)
        answers = [
            engine.encode(there, frames, context(), mode),
            engine.rollout(there, histories, blocks, context(), mode),
            engine.rollout_pool(there, views, shared, pool, context(), mode),
        ]
        packed = [histories.nbytes + blocks.nbytes, pool.nbytes, views.nbytes + shared.nbytes]
        assert watch.copies_in == [frames.nbytes, *packed]
        narrow = 2 if mode is NumericMode.BF16 and family == "lewm" else wide
        rows = FRAMES * narrow, ROWS * STEPS * narrow, VIEWS * CANDIDATES * STEPS * narrow
        assert watch.copies_out == [count * dim for count in rows]
        assert watch.waiting == [], "copies come from pinned memory and are not waited for"
        used = {kind for (name, kind) in watch.operations if name in PRODUCTS}
        assert used == {KINDS_OF_PRODUCT.get(mode, torch.float32)}, "in the type of its mode"
        if (family, mode) == ("lewm", NumericMode.FP32):
            clips = torch.zeros(2, ROWS, past + 1, 3, side, side)
            answers.append(engine.rollout_tangent(there, *clips, blocks, context()))
            assert watch.copies_in[4:] == [clips.nbytes + blocks.nbytes]
            assert (watch.copies_out[3:], watch.waiting) == ([answers[3].nbytes], [])
        for answer in answers:
            assert answer.device.type == "cpu"
            assert answer.dtype is (torch.float64 if wide == 8 else torch.float32)


@pytest.mark.parametrize(("drawn", "most"), [(False, 700), (True, 1000)])
def test_a_pool_at_paper_size_is_few_operations(
    engine: DeviceClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: bool, most: int
) -> None:
    """64 candidates of 5 steps under 5 views, from frames in bytes: kernels are what it takes."""
    write_checkpoint(tmp_path / "model", public_config("paper"))
    loaded = load_checkpoint(tmp_path, "model", device=torch.device("cpu"))
    history = np.zeros((3, 224, 224, 3), np.uint8)
    views: Views = history + np.arange(1, 6, dtype=np.uint8)[:, None, None, None, None]
    if drawn:
        views = PerturbationSet((GaussianNoise(sigma=0.1),), 5, 1, 2)
    with pretended_cuda() as watch:
        can_draw(monkeypatch)
        there = on_pretended(loaded)
        watch.writing = 0
        encoder, mode = HistoryEncoder(engine, max_frames=100), NumericMode.FP32
        asked = encoder.sources(there, history, views, history[:1], mode)
        found = encoder.encode_alone(there, asked, context(), mode)
        histories = torch.cat([found.clean[None], found.views])
        pool = torch.zeros(1, 64, 5, WIDTH)
        engine.rollout_pool(there, histories, torch.zeros(2, WIDTH), pool, context(), mode)
        assert histories.shape == (1 + 5, 3, 192)
        assert watch.writing <= most


@pytest.mark.parametrize("drawn", [False, True])
def test_an_ordinary_pool_is_one_copy_out_and_nothing_waits(
    engine: DeviceClient, model: FrozenJepa, monkeypatch: pytest.MonkeyPatch, drawn: bool
) -> None:
    """From frames in bytes and candidates to certificates, and so it can be captured."""
    frames = np.arange(7 * SIDE * SIDE * 3).astype(np.uint8).reshape(7, SIDE, SIDE, 3)
    candidates = np.arange(CANDIDATES * STEPS * WIDTH, dtype=np.float32)
    views: Views = PerturbationSet((GaussianNoise(sigma=0.1),)) if drawn else frames[None, 4:]
    with pretended_cuda() as watch:
        can_draw(monkeypatch)
        there = on_pretended(model)
        loaded = CachedCheckpoint("model", "", there, CheckpointEntry("model", "", 0, ()))
        asked = PoolRequest(
            checkpoint=loaded.pinned(),
            history=frames[:3],
            goal=frames[3],
            past_blocks=np.zeros((2, WIDTH), np.float32),
            views=views,
            candidates=candidates.reshape(CANDIDATES, STEPS, WIDTH),
            elite_count=2,
        )
        opened = Planner(engine, max_frames=9, max_predictions=999).prepare(loaded, asked)
        given = torch.from_numpy(asked.candidates)
        # What is read from the answer has no values here.
        monkeypatch.setattr(PoolProgram, "read", lambda *_: None)
        assert certify_captured(opened, given, context()) is None
        sent = 4 * (asked.past_blocks.size + asked.candidates.size)
        encoded = 4 if drawn else 7
        assert watch.copies_in == [encoded * frames[0].nbytes, sent]
        numbers = 1 + 7 * DIM + CANDIDATES + 6 * CANDIDATES + 5
        assert watch.copies_out == [8 * numbers]
        assert watch.waiting == []


def test_distances_are_measured_where_the_latents_are() -> None:
    with pretended_cuda() as watch:
        clean, views = (torch.zeros(n, 8, STEPS, DIM, device=CUDA) for n in (1, 3))
        weights = torch.full((STEPS,), 1 / STEPS, dtype=torch.float64, device=CUDA)
        steps = consistency.step_distances(clean, views)
        radius = consistency.acpc(steps, weights)
        shift = consistency.encoder_shift(clean, views)
        assert {x.device for x in (steps, radius, shift)} == {CUDA}
        assert (watch.copies_in, watch.copies_out) == ([], [])


KINDS = (
    GaussianNoise(sigma=0.1), Occlusion(size=0.4), RandomShift(pixels=3), ColorJitter(strength=0.7),
    GaussianBlur(kernel_size=5), Resize(scale=0.3), Brightness(change=0.2),
    Shadow(strength=0.5), Gamma(exponent=2.0),
)  # fmt: skip


def test_views_are_drawn_and_encoded_without_the_host(
    engine: DeviceClient, model: FrozenJepa, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole call: frames come as bytes, once; latents and which views are unchanged go."""
    history = np.arange(3 * SIDE * SIDE * 3).astype(np.uint8).reshape(3, SIDE, SIDE, 3)
    views = PerturbationSet(KINDS, 4, 1, 2)
    count = len(distinct_views(views))
    with pretended_cuda() as watch:
        can_draw(monkeypatch)
        there = on_pretended(model)
        encoder = HistoryEncoder(engine, max_frames=100)
        asked = encoder.sources(there, history, views, None, NumericMode.FP32)
        (encoded,) = encoder.encode(there, [asked], context(), NumericMode.FP32)
        assert encoded.views.shape == (count, 3, DIM)
        assert encoded.views.device.type == "cpu"
        assert watch.waiting == []
        assert watch.copies_in == [history.nbytes]
        made = len(asked.views)
        assert watch.copies_out == [(3 + 3 * count) * DIM * 4, made]


FAULTS: dict[str, tuple[Callable[[Tensor], object], type[AssertionError] | None]] = {
    "item": (lambda x: x.sum().item(), HiddenSynchronisation),
    "bool": (lambda x: bool((x > 0).all()), HiddenSynchronisation),
    "mask": (lambda x: x[x > 0], HiddenSynchronisation),
    "copy from the host": (lambda x: x.copy_(torch.zeros(4, 8)), HiddenSynchronisation),
    "a constant sent in every call": (lambda x: x + x.new_tensor([1.0] * 8), HiddenSynchronisation),
    "host tensor": (lambda x: x + torch.zeros(4, 8), MixedDevices),
    "host index": (lambda x: x[torch.arange(2)], MixedDevices),
    "host scalar": (lambda x: x + torch.tensor(1.0), None),
    "assignment by a mask": (lambda x: x.masked_fill_(x > 0, 0.0), None),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_and_what_is_none_is_not(name: str) -> None:
    planted, wanted = FAULTS[name]
    found = pytest.raises(wanted, match=r"test_pretended_cuda\.py:\d+ in") if wanted else None
    with pretended_cuda() as watch, found or nullcontext():
        planted(torch.zeros(4, 8, device=CUDA))
        assert (watch.copies_in, watch.copies_out) == ([], [])


def test_a_copy_from_memory_that_is_not_pinned_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acpc_server.engine.accelerator.pinned", lambda x, _: x)
    with pretended_cuda() as watch:
        (there,) = to_device(CUDA, torch.float64, torch.zeros(3))
        assert len(watch.waiting) == 1
        assert (there.dtype, watch.copies_in) == (torch.float64, [12]), "widened there"
