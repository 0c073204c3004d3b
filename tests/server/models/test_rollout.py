"""Rollouts of every legal history length, against the NumPy loop and the law of causality."""

import jepa_reference as reference
import numpy as np
import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.models import FrozenWorldModel, load_checkpoint, rollout, rollout_pool
from acpc_server.models.rollout import Unrolls
from public_checkpoint import public_config, random_state_dict, write_checkpoint
from torch import Tensor

pytestmark = pytest.mark.edge

CONFIG = public_config()
HORIZON = 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> FrozenWorldModel:
    root = tmp_path_factory.mktemp("checkpoints")
    write_checkpoint(root / "run", CONFIG)
    return load_checkpoint(root, "run", device=torch.device("cpu"))


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


@pytest.mark.parametrize("history", [1, 2, 3])
@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_a_pool_is_every_history_under_every_candidate(
    model: FrozenWorldModel, history: int, horizon: int
) -> None:
    """Sharing work over views, candidates and steps changes no prediction."""
    generator = torch.Generator().manual_seed(history)
    histories = torch.randn(3, history, model.card.latent_dim, generator=generator)
    past = torch.randn(history - 1, model.card.action_block_dim, generator=generator)
    candidates = torch.randn(4, horizon, model.card.action_block_dim, generator=generator)
    pool = rollout_pool(model, histories, past, candidates[None])  # (3, 4, horizon, dim)
    assert pool.shape == (3, 4, horizon, model.card.latent_dim)
    for v, view in enumerate(histories):
        for j, candidate in enumerate(candidates):
            alone = rollout(model, view[None], torch.cat([past, candidate])[None])
            torch.testing.assert_close(pool[v, j], alone[0], rtol=2e-5, atol=1e-5)


def test_histories_in_a_row_may_share_a_pool(model: FrozenWorldModel) -> None:
    """Of a family with its own unroll and of one without."""
    width = model.card.action_block_dim
    histories = torch.randn(6, 2, model.card.latent_dim)
    past, pools = torch.randn(2, 1, width), torch.randn(2, 4, 5, width)
    alone = [
        rollout_pool(model, histories[3 * i : 3 * i + 3], past[i], pools[i : i + 1])
        for i in range(2)
    ]
    assert not isinstance(OneStep(model), Unrolls)
    for family in (model, OneStep(model)):
        together = rollout_pool(family, histories, past, pools)
        torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-5)


class OneStep:
    """A world model with nothing but the protocol's methods."""

    def __init__(self, inner: FrozenWorldModel) -> None:
        self.card, self.device = inner.card, inner.device
        self.encode, self.embed_actions = inner.encode, inner.embed_actions
        self.predict_next = inner.predict_next
