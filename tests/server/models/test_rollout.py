"""Rollouts of every legal history length, against float64 and the law of causality."""

import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.models import FrozenWorldModel, load_checkpoint, rollout, rollout_pool
from acpc_server.models.rollout import Unrolls
from public_checkpoint import public_config, write_checkpoint
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
@pytest.mark.parametrize("own_unroll", [True, False])
def test_a_pool_is_every_history_under_every_candidate(
    model: FrozenWorldModel, history: int, horizon: int, own_unroll: bool
) -> None:
    """Sharing work over pools, views, candidates and steps changes no prediction."""
    generator = torch.Generator().manual_seed(history)
    card, family = model.card, model if own_unroll else OneStep(model)
    assert isinstance(family, Unrolls) == own_unroll
    histories = torch.randn(6, history, card.latent_dim, generator=generator)
    past = torch.randn(2, history - 1, card.action_block_dim, generator=generator)
    pools = torch.randn(2, 4, horizon, card.action_block_dim, generator=generator)
    together = rollout_pool(family, histories, past, pools)  # (6, 4, horizon, dim)
    assert together.shape == (6, 4, horizon, card.latent_dim)
    blocks = torch.cat([past[:, None].expand(-1, 4, -1, -1), pools], dim=2)
    for v, view in enumerate(histories):  # the first three are those of the first pool
        alone = rollout(model, view[None].expand(4, -1, -1), blocks[v // 3])
        torch.testing.assert_close(together[v], alone, rtol=1e-4, atol=1e-5)
    for one in (0, 1):
        rows = slice(3 * one, 3 * one + 3)
        found = rollout_pool(family, histories[rows], past[one], pools[one : one + 1])
        torch.testing.assert_close(found, together[rows], rtol=1e-4, atol=1e-5)


class OneStep:
    def __init__(self, inner: FrozenWorldModel) -> None:
        self.card, self.device = inner.card, inner.device
        self.encode, self.embed_actions = inner.encode, inner.embed_actions
        self.predict_next = inner.predict_next
