"""The order without torch is torch's own."""

import numpy as np
import pytest
import torch
from acpc.datasets.order import TorchOrder

SEEDS = [0, 9101, 2**32 - 1, 2**32 + 9101, 2**64 - 1]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", [1, 2, 3, 1000, 2**16, 2**16 + 1, 2**17 + 5])
def test_a_permutation_and_what_is_drawn_after_it(seed: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    wanted = torch.randperm(count, generator=generator).numpy()
    order = TorchOrder(seed)
    np.testing.assert_array_equal(np.concatenate(list(order.permutation(count))), wanted)
    for limit in (1, 7, 1000, 2**27, 2**28 - 1):
        assert order.below(limit) == int(torch.randint(limit, (1,), generator=generator))


def test_nothing_to_permute_is_nothing() -> None:
    assert list(TorchOrder(3).permutation(0)) == []
