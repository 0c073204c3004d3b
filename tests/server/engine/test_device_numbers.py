"""Chunks change nothing, and each numeric mode is what it says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient, require_mode
from acpc_server.engine.arithmetic import arithmetic
from acpc_server.engine.sizes import frames_per_call, rollouts_per_call
from acpc_server.errors import InvalidArgument
from acpc_server.models import FrozenWorldModel
from acpc_server.models.loader import load_checkpoint
from acpc_server.models.rollout import rollout, rollout_pool
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from float32_model import Float32Model
from plain_model import CARD
from public_checkpoint import public_config, write_checkpoint
from reference_model import ReferenceModel

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> FrozenWorldModel:
    root = tmp_path_factory.mktemp("checkpoints")
    write_checkpoint(root / "model")
    return load_checkpoint(root, "model", device=CPU)


@pytest.fixture(scope="module")
def engine() -> DeviceClient:
    return DeviceClient(CPU, Metrics())


def context() -> RequestContext:
    return RequestContext(Priority.JOB)


def test_encoding_in_chunks_is_encoding_whole(
    engine: DeviceClient, model: FrozenWorldModel
) -> None:
    size = frames_per_call("cpu", Priority.JOB, model.card, 28, 28)
    many = torch.randn(2 * size + 7, 3, 28, 28, generator=torch.Generator().manual_seed(1))
    parts = engine.encode(model, many, context(), NumericMode.FP32)
    assert parts.shape == (2 * size + 7, 16)
    assert parts.dtype == torch.float32
    np.testing.assert_allclose(parts, model.encode(many), rtol=0, atol=2e-5)
    again = engine.encode(model, many, context(), NumericMode.FP32)
    assert torch.equal(parts, again), "the same request is cut alike and gives the same bytes"


def test_rolling_out_in_chunks_is_rolling_out_whole(
    engine: DeviceClient, model: FrozenWorldModel
) -> None:
    generator = torch.Generator().manual_seed(2)
    histories = torch.randn(300, 3, 16, generator=generator)
    blocks = torch.randn(300, 7, 10, generator=generator)
    parts = engine.rollout(model, histories, blocks, context(), NumericMode.FP32)
    assert parts.shape == (300, 5, 16)
    np.testing.assert_allclose(parts, rollout(model, histories, blocks), rtol=0, atol=2e-5)


@pytest.mark.parametrize("side", [1, 28, 224, 512, 2048])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_job_call_has_a_frame_and_is_no_longer_than_an_interactive_one(
    device: str, side: int
) -> None:
    job, interactive = (
        frames_per_call(device, p, CARD, side, side) for p in (Priority.JOB, Priority.INTERACTIVE)
    )
    assert 1 <= job <= interactive <= 512


def test_a_job_of_a_larger_model_is_cut_finer_down_to_a_row() -> None:
    cards = [
        replace(CARD, parameter_count=count, image_size=224) for count in (10**5, 10**8, 10**12)
    ]
    frames = [frames_per_call("cpu", Priority.JOB, card, 224, 224) for card in cards]
    rollouts = [rollouts_per_call("cpu", Priority.JOB, card, 5) for card in cards]
    assert frames[0] > frames[1] >= frames[2] == 1
    assert rollouts[0] > rollouts[1] >= rollouts[2] >= 1


@pytest.mark.parametrize(
    ("mode", "device", "narrow", "words"),
    [
        (NumericMode.TF32, "cpu", False, "tf32 needs a CUDA device"),
        (NumericMode.FP64, "cpu", True, "family lewm has no float64; use fp32"),
    ],
)
def test_a_mode_is_refused_where_device_or_family_lacks_it(
    model: FrozenWorldModel, mode: NumericMode, device: str, narrow: bool, words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words) as refused:
        require_mode(mode, torch.device(device), Float32Model(model) if narrow else model)
    assert refused.value.field == "numeric_mode"
    for there in (NumericMode.FP32, NumericMode.BF16, NumericMode.FP64):
        require_mode(there, CPU, model)
    require_mode(NumericMode.TF32, torch.device("cuda"), model)


def test_fp64_is_float64_throughout(engine: DeviceClient, model: FrozenWorldModel) -> None:
    """Encoder, rollout and pools agree with the independent float64 forward to its last digits."""
    reference = ReferenceModel.of(public_config(), 0)
    generator = torch.Generator().manual_seed(6)
    frames = torch.randn(5, 3, 28, 28, generator=generator)
    latents = engine.encode(model, frames, context(), NumericMode.FP64)
    assert latents.dtype == torch.float64
    wanted = reference.encode(frames.double().numpy())
    np.testing.assert_allclose(latents, wanted, rtol=0, atol=1e-13)
    blocks = torch.randn(6, 10, generator=generator)
    histories = latents[None, :3]
    rolled = engine.rollout(model, histories, blocks[None], context(), NumericMode.FP64)
    expected = reference.rollout(wanted[:3], blocks.double().numpy())
    np.testing.assert_allclose(rolled[0], expected, rtol=0, atol=1e-13)
    pool = blocks[None, None, 2:]
    pooled = engine.rollout_pool(model, histories, blocks[:2], pool, context(), NumericMode.FP64)
    np.testing.assert_allclose(pooled[0, 0], expected, rtol=0, atol=1e-13)
    single = engine.encode(model, frames, context(), NumericMode.FP32)
    assert single.dtype == torch.float32, "the model itself stays as it was"


def test_bf16_is_close_to_fp32_and_not_the_same(
    engine: DeviceClient, model: FrozenWorldModel
) -> None:
    generator = torch.Generator().manual_seed(3)
    frames = torch.randn(8, 3, 28, 28, generator=generator)
    exact = engine.encode(model, frames, context(), NumericMode.FP32)
    rough = engine.encode(model, frames, context(), NumericMode.BF16)
    assert rough.dtype == torch.float32
    error = float((rough - exact).norm() / exact.norm())
    assert 1e-4 < error < 0.05
    assert torch.equal(exact, engine.encode(model, frames, context(), NumericMode.FP32))


@pytest.mark.parametrize("family", ["lewm", "pldm"])
def test_bf16_weights_kept_are_as_good_as_weights_cast_in_every_call(
    tmp_path: Path, family: str
) -> None:
    write_checkpoint(tmp_path / "model", public_config(family=family))
    model = load_checkpoint(tmp_path, "model", device=CPU)
    generator = torch.Generator().manual_seed(4)
    frames = torch.randn(5, 3, 28, 28, generator=generator)
    histories = torch.randn(3, 3, model.card.latent_dim, generator=generator)
    past = torch.randn(2, model.card.action_block_dim, generator=generator)
    pools = torch.randn(1, 6, 4, model.card.action_block_dim, generator=generator)
    reduced = model.in_bfloat16()
    assert reduced is model.in_bfloat16(), "made once"
    with arithmetic(NumericMode.BF16, CPU):
        assert torch.equal(reduced.encode(frames), model.encode(frames))
        kept = rollout_pool(reduced, histories, past, pools)
        cast = rollout_pool(model, histories, past, pools)
        assert (kept - cast).abs().max() <= 5e-2 * cast.abs().max()  # as captured programs
    types = {x.dtype for x in model.network.parameters()}
    assert types == {torch.float32}, "the model itself stays as it was"
    assert 2 <= model.reduced_bytes / model.card.parameter_count < 4, "most weights are halved"


def test_a_request_adds_up_its_times(engine: DeviceClient, model: FrozenWorldModel) -> None:
    used = context()
    frames = torch.zeros(frames_per_call("cpu", Priority.JOB, model.card, 28, 28) + 1, 3, 28, 28)
    engine.encode(model, frames, used, NumericMode.FP32)
    assert used.compute_seconds > 0
    assert used.queue_seconds > 0
