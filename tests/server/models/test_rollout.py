"""Rollouts of every legal history length, against the NumPy loop and the law of causality."""

from pathlib import Path

import jepa_reference as reference
import numpy as np
import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.models import FrozenWorldModel, load_checkpoint, rollout
from public_checkpoint import public_config, random_state_dict, write_checkpoint
from torch import Tensor

CONFIG = public_config()
HORIZON = 5


@pytest.fixture
def model(tmp_path: Path) -> FrozenWorldModel:
    write_checkpoint(tmp_path / "run", CONFIG)
    return load_checkpoint(tmp_path, "run", device=torch.device("cpu"))


def inputs(history: int, batch: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(history)
    latents = torch.randn(batch, history, 16, generator=generator)
    return latents, torch.randn(batch, history + HORIZON - 1, 10, generator=generator)


@pytest.mark.parametrize("history", [1, 2, 3])
def test_every_history_length(model: FrozenWorldModel, history: int) -> None:
    state = {name: tensor.double().numpy() for name, tensor in random_state_dict(CONFIG).items()}
    latents, blocks = inputs(history)
    found = rollout(model, latents, blocks).double().numpy()
    assert found.shape == (2, HORIZON, 16)
    for row in range(2):
        wanted = reference.rollout(
            state, CONFIG, latents[row].double().numpy(), blocks[row].double().numpy()
        )
        assert np.linalg.norm(found[row] - wanted) <= 1e-5 * np.linalg.norm(wanted)


@pytest.mark.parametrize("history", [1, 2, 3])
def test_block_k_leaves_frame_k(model: FrozenWorldModel, history: int) -> None:
    """Changing block k changes frame k + 1 and no frame before it."""
    latents, blocks = inputs(history)
    before = rollout(model, latents, blocks)
    for k in range(history - 1, blocks.shape[1]):
        changed = blocks.clone()
        changed[:, k] += 1.0
        after = rollout(model, latents, changed)
        step = k - history + 1  # predicts frame k + 1
        assert torch.equal(after[:, :step], before[:, :step])
        assert (after[:, step] - before[:, step]).abs().amax() > 1e-3


def test_in_one_piece_or_two(model: FrozenWorldModel) -> None:
    """Rolling on from predicted latents is the same rollout."""
    latents, blocks = inputs(3)
    whole = rollout(model, latents, blocks)
    first = rollout(model, latents, blocks[:, :4])
    resumed = torch.cat((latents, first), dim=1)[:, -3:]
    second = rollout(model, resumed, blocks[:, 2:])
    torch.testing.assert_close(torch.cat((first, second), dim=1), whole)


def test_rows_do_not_mix(model: FrozenWorldModel) -> None:
    latents, blocks = inputs(2, batch=4)
    together = rollout(model, latents, blocks)
    alone = rollout(model, latents[2:3], blocks[2:3])
    torch.testing.assert_close(together[2:3], alone)


@pytest.mark.parametrize(
    ("history", "blocks", "width", "field", "fragment"),
    [
        (4, 6, 10, "history", "4 history frames, but the checkpoint's predictor takes 1 to 3"),
        (3, 2, 10, "action_blocks", "2 blocks for 3 history frames"),
        (3, 5, 4, "action_blocks", "blocks of width 4, but the checkpoint was trained on"),
    ],
)
def test_misfits_are_named(
    model: FrozenWorldModel, history: int, blocks: int, width: int, field: str, fragment: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        rollout(model, torch.zeros(1, history, 16), torch.zeros(1, blocks, width))
    assert caught.value.field == field
    assert fragment in caught.value.description
