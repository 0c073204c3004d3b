"""Numbers of a device against independent float64 computations: ACPC_TEST_DEVICE, else the CPU.

Beside it: chunks change nothing, and each numeric mode is what it says.
"""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import jepa_reference as reference
import numpy as np
import pytest
import torch
from acpc.contract import (
    GaussianBlur,
    GaussianNoise,
    NumericMode,
    PerturbationSet,
    PoolRequest,
    RandomShift,
    Resize,
    VisualChange,
)
from acpc_server.engine import CachedCheckpoint, DeviceClient, choose_device, require_mode
from acpc_server.engine.accelerator import to_device, to_host
from acpc_server.engine.arithmetic import arithmetic
from acpc_server.engine.graphs import AFTER, AFTER_OF_JOB
from acpc_server.engine.sizes import frames_per_call, pool_candidates_per_call, rollouts_per_call
from acpc_server.errors import PARSES, FailedPrecondition, InvalidArgument, parsing
from acpc_server.interactive import Planner, pool_work
from acpc_server.models import FrozenJepa
from acpc_server.models.folder import CheckpointEntry
from acpc_server.models.loader import load_checkpoint
from acpc_server.models.rollout import rollout, rollout_pool
from acpc_server.numerics.consistency import horizon_weights
from acpc_server.numerics.local import pixel_direction, rademacher_probe, squared_norm
from acpc_server.observe import Metrics
from acpc_server.perturb import perturb_frames
from acpc_server.scheduling import Priority, RequestContext
from float32_model import Float32Model
from plain_model import CARD, PlainModel
from public_checkpoint import public_config, random_state_dict, write_checkpoint
from reference_model import ReferenceModel

CPU, DEVICE = torch.device("cpu"), choose_device(os.environ.get("ACPC_TEST_DEVICE", "cpu"))
FP32, FP64 = NumericMode.FP32, NumericMode.FP64
TF32, BF16 = NumericMode.TF32, NumericMode.BF16
# Relative to the largest number, at least and at most; TF32 by mistake is off by 1e-3.
ALLOWED = {FP64: (0, 1e-12), FP32: (0, 1e-4), TF32: (0, 2e-2), BF16: (1e-4, 1e-1)}
JOB, INTERACTIVE = Priority.JOB, Priority.INTERACTIVE


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> FrozenJepa:
    root = tmp_path_factory.mktemp("checkpoints")
    write_checkpoint(root / "model")
    return load_checkpoint(root, "model", device=DEVICE)


@pytest.fixture(scope="module")
def engine() -> Iterator[DeviceClient]:
    engine = DeviceClient(DEVICE, Metrics())
    yield engine
    engine.close()


def random(*shape: int, seed: int = 6) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.device
@pytest.mark.parametrize("mode", [mode for mode in ALLOWED if mode is not TF32 or DEVICE != CPU])
def test_latents_rollouts_and_pools_are_the_references(
    engine: DeviceClient, model: FrozenJepa, mode: NumericMode
) -> None:
    reference = ReferenceModel.of(public_config(), 0)

    def check(found: torch.Tensor, wanted: np.ndarray) -> None:
        assert found.dtype is (torch.float64 if mode is FP64 else torch.float32)
        least, most = ALLOWED[mode]
        error = np.abs(found.double().numpy() - wanted).max() / np.abs(wanted).max()
        assert least <= error <= most

    asked = RequestContext(INTERACTIVE), mode
    frames, blocks, histories = random(3, 3, 28, 28), random(6, 10), random(1, 3, 16)
    ends = reference.rollout(histories[0].double().numpy(), blocks.double().numpy())
    check(engine.rollout(model, histories, blocks[None], *asked)[0], ends)
    for _ in range(12):  # graphs serve the last of them, where there are graphs
        check(engine.encode(model, frames, *asked), reference.encode(frames.double().numpy()))
        pooled = engine.rollout_pool(model, histories, blocks[:2], blocks[None, None, 2:], *asked)
        check(pooled[0, 0], ends)
    kept = {x.dtype for x in model.network.parameters()}
    assert kept == {torch.float32}, "the model itself stays as it was"


@pytest.mark.device
@pytest.mark.parametrize("mode", [FP32, BF16])
def test_a_jobs_bits_do_not_depend_on_what_was_captured(
    engine: DeviceClient, model: FrozenJepa, mode: NumericMode
) -> None:
    """Its later calls of a shape may be a graph's."""
    frames, histories, blocks = random(30, 3, 28, 28), random(12, 3, 16), random(12, 6, 10)

    def asked() -> torch.Tensor:
        context = RequestContext(JOB)
        encoded = engine.encode(model, frames, context, mode)
        rolled = engine.rollout(model, histories, blocks, context, mode)
        return torch.cat([encoded.flatten(), rolled.flatten()])

    first = asked()
    assert all(torch.equal(asked(), first) for _ in range(AFTER_OF_JOB + 3))


@pytest.mark.device
@pytest.mark.parametrize("drawn", [False, True], ids=["sent", "drawn"])
def test_an_ordinary_pool_is_that_of_float64(
    engine: DeviceClient, model: FrozenJepa, drawn: bool
) -> None:
    """From frames to certificates, by one graph where there are graphs; float64 goes in pieces."""
    rng, planner = np.random.default_rng(3), Planner(engine, max_frames=99, max_predictions=9999)
    loaded = CachedCheckpoint("model", "", model, CheckpointEntry("model", "", 0, ()))
    for _ in range(AFTER + 3):
        frames = rng.integers(0, 256, (7, 28, 28, 3), np.uint8)
        request = PoolRequest(
            checkpoint=loaded.pinned(),
            history=frames[:3],
            goal=frames[3],
            past_blocks=rng.standard_normal((2, 10), np.float32),
            views=PerturbationSet((GaussianNoise(0.1),), 2) if drawn else frames[None, 4:],
            candidates=rng.standard_normal((16, 4, 10), np.float32),
            elite_count=4,
        )
        answers = []
        for mode in (FP32, FP64):
            context = RequestContext(INTERACTIVE)
            moment = planner.prepare(loaded, replace(request, numeric_mode=mode))
            work = pool_work(moment, request.candidates, context, request)
            answers.append(engine.run(work, context))
        found, exact = answers
        scale = exact.clean_costs.max()
        np.testing.assert_allclose(found.clean_costs, exact.clean_costs, rtol=1e-4)
        for view, other in zip(found.views, exact.views, strict=True):
            np.testing.assert_allclose(view.bounds, other.bounds, atol=1e-4 * scale)
            for one, wanted in ((view.top1, other.top1), (view.elite, other.elite)):
                assert one.margin == pytest.approx(wanted.margin, abs=1e-3 * scale)
    assert found.receipt.program == ("graph" if DEVICE.type == "cuda" else "")


@pytest.mark.device
@pytest.mark.parametrize(
    "spec",
    [GaussianNoise(0.1), GaussianBlur(5), Resize(0.5), RandomShift(2)],
    ids=lambda spec: spec.kind,
)
def test_a_view_is_the_processors(spec: VisualChange) -> None:
    frames, key = random(2, 3, 32, 32), {"seed": 1, "anchor": 2, "draw": 3}
    (there,) = to_device(DEVICE, torch.float32, frames)
    found = to_host(perturb_frames(there, spec, **key))
    torch.testing.assert_close(found, perturb_frames(frames, spec, **key), rtol=0, atol=1e-5)


def test_computing_in_chunks_is_computing_whole(engine: DeviceClient, model: FrozenJepa) -> None:
    """And the same request is cut alike and gives the same bytes."""
    used, size = RequestContext(JOB), frames_per_call("cpu", JOB, model.card, 28, 28)
    frames, histories, blocks = random(2 * size + 7, 3, 28, 28), random(300, 3, 16), random(7, 10)
    blocks = blocks.expand(300, 7, 10)
    for found, again, whole in (
        (*(engine.encode(model, frames, used, FP32) for _ in "ab"), model.encode(frames)),
        (
            *(engine.rollout(model, histories, blocks, used, FP32) for _ in "ab"),
            rollout(model, histories, blocks),
        ),
    ):
        torch.testing.assert_close(found, whole, rtol=0, atol=2e-5)
        assert torch.equal(found, again)
    assert used.compute_seconds > 0 and used.queue_seconds > 0, "a request adds up its times"


@pytest.mark.parametrize("side", [1, 28, 224, 512, 2048])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_job_call_has_a_frame_and_is_no_longer_than_an_interactive_one(
    device: str, side: int
) -> None:
    job, interactive = (
        frames_per_call(device, priority, CARD, side, side) for priority in (JOB, INTERACTIVE)
    )
    assert 1 <= job <= interactive <= 512


def test_a_gpu_takes_more_than_a_processor() -> None:
    for priority in Priority:
        there, here = (frames_per_call(x, priority, CARD, 224, 224) for x in ("cuda", "cpu"))
        assert there > here
        assert rollouts_per_call("cuda", priority, CARD, 8) >= 8
    here, there = (pool_candidates_per_call(x, 2, CARD, 8) for x in ("cpu", "cuda"))
    assert there > here


def test_a_job_of_a_larger_model_is_cut_finer_down_to_a_row() -> None:
    cards = [replace(CARD, parameter_count=10**power, image_size=224) for power in (5, 8, 12)]
    frames = [frames_per_call("cpu", JOB, card, 224, 224) for card in cards]
    rollouts = [rollouts_per_call("cpu", JOB, card, 5) for card in cards]
    assert frames[0] > frames[1] >= frames[2] == 1
    assert rollouts[0] > rollouts[1] >= rollouts[2] >= 1


@pytest.mark.parametrize(
    ("mode", "narrow", "words"),
    [
        (TF32, False, "tf32 needs a CUDA device, the server runs on cpu"),
        (FP64, True, "family lewm has no float64; use fp32"),
    ],
)
def test_a_mode_is_refused_where_device_or_family_lacks_it(
    model: FrozenJepa, mode: NumericMode, narrow: bool, words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words) as refused:
        require_mode(mode, CPU, Float32Model(model) if narrow else model)
    assert refused.value.field == "numeric_mode"
    for there in (FP32, BF16, FP64):
        require_mode(there, CPU, model)
    require_mode(TF32, torch.device("cuda"), model)


@pytest.mark.parametrize("family", ["lewm", "pldm"])
def test_bf16_weights_kept_are_as_good_as_weights_cast_in_every_call(
    tmp_path: Path, family: str
) -> None:
    write_checkpoint(tmp_path / "model", public_config(family=family))
    model = load_checkpoint(tmp_path, "model", device=CPU)
    frames, width = random(5, 3, 28, 28), model.card.action_block_dim
    given = random(3, 3, model.card.latent_dim), random(2, width), random(1, 6, 4, width)
    reduced = model.in_bfloat16()
    assert reduced is model.in_bfloat16(), "made once"
    with arithmetic(BF16, CPU):
        assert torch.equal(reduced.encode(frames), model.encode(frames))
        kept, cast = rollout_pool(reduced, *given), rollout_pool(model, *given)
        assert (kept - cast).abs().max() <= 5e-2 * cast.abs().max()  # as captured programs
    assert 2 <= model.reduced_bytes / model.card.parameter_count < 4, "most weights are halved"


HORIZON, PROBES = 2, 64


def explicit_jacobian(images: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """Derivative of the rollout by pixels, reverse mode in float64, (H * dim, pixels)."""
    config = public_config()
    state = {name: x.double() for name, x in random_state_dict(config, 0).items()}
    std = torch.tensor([0.229, 0.224, 0.225], dtype=torch.float64).view(3, 1, 1)

    def predicted(pixels: torch.Tensor) -> torch.Tensor:
        latents = reference.encode(state, config, pixels / std)
        return reference.rollout(state, config, latents, blocks.double())

    jacobian = torch.func.jacrev(predicted)(images.double() * std)  # (H, dim, h, 3, side, side)
    return jacobian.flatten(2)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_tangents_and_their_trace_are_those_of_the_explicit_jacobian(
    engine: DeviceClient, model: FrozenJepa
) -> None:
    """Each J v to 1e-4, and Hutchinson's mean within four of its standard errors."""
    generator = torch.Generator().manual_seed(0)
    history = torch.randn(3, 3, 28, 28, generator=generator)
    blocks = torch.randn(3 + HORIZON - 1, 10, generator=generator)
    jacobian = explicit_jacobian(history, blocks)
    probes = torch.stack(
        [rademacher_probe(history.shape, seed=0, anchor=4, probe=k) for k in range(PROBES)]
    )
    tangents = engine.rollout_tangent(
        model,
        history.expand(PROBES, -1, -1, -1, -1),
        pixel_direction(probes),
        blocks.expand(PROBES, -1, -1),
        RequestContext(Priority.JOB),
    )
    wanted = torch.einsum("kdp,np->nkd", jacobian, probes.double().flatten(1))
    error = (tangents - wanted).norm(dim=-1) / wanted.norm(dim=-1)
    assert error.max() < 1e-4
    weights = horizon_weights((), HORIZON)
    frobenius = (jacobian.square().sum(dim=(1, 2)) * weights).sum()
    values = squared_norm(tangents, weights)
    standard_error = values.std() / PROBES**0.5
    assert abs(values.mean() - frobenius) < 4 * standard_error
    assert standard_error < 0.25 * frobenius


def test_plug_in_families_have_derivatives_without_doing_anything(engine: DeviceClient) -> None:
    """A mean over pixels has a derivative known by hand, at every step."""
    directions = torch.rand(5, 2, 3, 8, 8)
    found = engine.rollout_tangent(
        PlainModel(), torch.rand(5, 2, 3, 8, 8), directions, torch.zeros(5, 4, 2), _context()
    )
    wanted = directions[:, -1].mean(dim=(2, 3))[:, None].expand(-1, 3, -1)
    torch.testing.assert_close(found, wanted)


class HiddenModel(PlainModel):
    def encode(self, frames: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return super().encode(frames)


def test_a_hidden_derivative_is_refused_not_zero(engine: DeviceClient) -> None:
    frames, blocks = torch.rand(1, 1, 3, 8, 8), torch.zeros(1, 1, 2)
    with pytest.raises(FailedPrecondition, match=r"'plain'.*torch.no_grad") as caught:
        engine.rollout_tangent(HiddenModel(), frames, frames, blocks, _context())
    assert caught.value.reason == "NO_FORWARD_DERIVATIVE"


def test_the_cut_does_not_move_the_numbers_beyond_rounding(
    engine: DeviceClient, model: FrozenJepa
) -> None:
    history, blocks = torch.rand(9, 3, 3, 28, 28), torch.rand(9, 3, 10)
    every = engine.rollout_tangent(model, history, history, blocks, _context())
    alone = [
        engine.rollout_tangent(model, h[None], h[None], b[None], _context())
        for h, b in zip(history, blocks, strict=True)
    ]
    np.testing.assert_allclose(every, torch.cat(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("failures", [PARSES - 1, PARSES])
def test_a_failure_of_the_parser_is_tried_again(failures: int) -> None:
    """Threads of Python 3.11 that parse at once may get a SystemError."""
    tries: list[int] = []

    def load() -> None:
        tries.append(1)
        if len(tries) <= failures:
            raise SystemError("AST constructor recursion depth mismatch")

    with pytest.raises(SystemError) if failures == PARSES else nullcontext():
        parsing(load)
    assert len(tries) == PARSES


def _context() -> RequestContext:
    return RequestContext(Priority.JOB)
