"""Numbers of a device against independent float64 computations: ACPC_TEST_DEVICE, else the CPU."""

import os
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from acpc.contract import (
    GaussianBlur,
    GaussianNoise,
    NumericMode,
    RandomShift,
    Resize,
    VisualChange,
)
from acpc_server.engine import DeviceClient, choose_device, require_mode
from acpc_server.engine.accelerator import to_device, to_host
from acpc_server.errors import InvalidArgument
from acpc_server.models import FrozenWorldModel
from acpc_server.models.loader import load_checkpoint
from acpc_server.observe import Metrics
from acpc_server.perturb import perturb_frames
from acpc_server.scheduling import Priority, RequestContext
from public_checkpoint import public_config, write_checkpoint
from reference_model import ReferenceModel

pytestmark = pytest.mark.device
# Relative to the largest number; TF32 by mistake is off by 1e-3.
ALLOWED = {
    NumericMode.FP64: 1e-10,
    NumericMode.FP32: 1e-4,
    NumericMode.TF32: 2e-2,
    NumericMode.BF16: 1e-1,
}


DEVICE = choose_device(os.environ.get("ACPC_TEST_DEVICE", "cpu"))
MISSING = [NumericMode.TF32] if DEVICE.type == "cpu" else []


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> FrozenWorldModel:
    root = tmp_path_factory.mktemp("checkpoints")
    write_checkpoint(root / "model")
    return load_checkpoint(root, "model", device=DEVICE)


@pytest.fixture(scope="module")
def engine() -> Iterator[DeviceClient]:
    engine = DeviceClient(DEVICE, Metrics())
    yield engine
    engine.close()


def close(found: torch.Tensor, wanted: np.ndarray, allowed: float) -> None:
    assert np.abs(found.double().numpy() - wanted).max() <= allowed * np.abs(wanted).max()


@pytest.mark.parametrize("mode", [mode for mode in ALLOWED if mode not in MISSING])
def test_latents_rollouts_and_pools_are_the_references(
    engine: DeviceClient, model: FrozenWorldModel, mode: NumericMode
) -> None:
    asked, allowed = (RequestContext(Priority.INTERACTIVE), mode), ALLOWED[mode]
    reference = ReferenceModel.of(public_config(), 0)
    generator = torch.Generator().manual_seed(6)
    frames = torch.randn(3, 3, 28, 28, generator=generator)
    blocks = torch.randn(6, 10, generator=generator)
    histories = torch.randn(1, 3, 16, generator=generator)
    wanted = reference.encode(frames.double().numpy())
    close(engine.encode(model, frames, *asked), wanted, allowed)
    ends = reference.rollout(histories[0].double().numpy(), blocks.double().numpy())
    close(engine.rollout(model, histories, blocks[None], *asked)[0], ends, allowed)
    for _ in range(12):  # a graph of the pool serves the last of them, where there are graphs
        pooled = engine.rollout_pool(model, histories, blocks[:2], blocks[None, None, 2:], *asked)
        close(pooled[0, 0], ends, allowed)


def test_a_mode_that_the_device_lacks_is_answered_with_words(model: FrozenWorldModel) -> None:
    for mode in MISSING:
        with pytest.raises(InvalidArgument, match=DEVICE.type) as told:
            require_mode(mode, DEVICE, model)
        assert told.value.field == "numeric_mode"


@pytest.mark.parametrize(
    "spec",
    [GaussianNoise(0.1), GaussianBlur(5), Resize(0.5), RandomShift(2)],
    ids=lambda spec: spec.kind,
)
def test_a_view_is_the_processors(spec: VisualChange) -> None:
    frames = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(7))
    (there,) = to_device(DEVICE, torch.float32, frames)
    key = {"seed": 1, "anchor": 2, "draw": 3}
    found = to_host(perturb_frames(there, spec, **key))
    torch.testing.assert_close(found, perturb_frames(frames, spec, **key), rtol=0, atol=1e-5)
