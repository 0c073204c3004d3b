"""Attention with turned queries and keys, against a loop over tokens, axes and pairs."""

import math

import numpy as np
import pytest
import torch
from acpc_server.models.plugin import RotaryAttention, rotation, token_positions
from jepa_wm_reference import turned

ROWS, COLUMNS, FRAMES = 2, 3, 2


def places(lead: int) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for frame in range(FRAMES):
        found += [(frame, 0, 0)] * lead
        found += [(frame, row, column) for row in range(ROWS) for column in range(COLUMNS)]
    return found


@pytest.mark.parametrize(("lead", "head"), [(0, 25), (1, 12), (2, 6)])
def test_each_token_mixes_what_it_may_see(lead: int, head: int) -> None:
    """Widths that leave coordinates unturned; tokens before each frame's patches; fewer queries."""
    heads, tokens = 2, places(lead)
    assert token_positions(FRAMES, ROWS, COLUMNS, lead).tolist() == [list(x) for x in tokens]
    torch.manual_seed(0)
    layer = RotaryAttention(heads * head, heads).double()
    x = torch.randn(1, len(tokens), heads * head, dtype=torch.float64)
    seen = [[a[0] >= b[0] for b in tokens] for a in tokens]
    turn = rotation(token_positions(FRAMES, ROWS, COLUMNS, lead), head)
    with torch.no_grad():
        found = layer(x, turn, len(tokens), torch.tensor(seen))
        last = layer(x, turn, len(tokens) // FRAMES)
    state = {name: value.numpy() for name, value in layer.state_dict().items()}
    qkv = (x[0].numpy() @ state["qkv.weight"].T + state["qkv.bias"]).reshape(-1, 3, heads, head)
    mixed = np.zeros((len(tokens), heads, head))
    for h in range(heads):
        q, k = ([turned(qkv[i, part, h], at) for i, at in enumerate(tokens)] for part in (0, 1))
        for i in range(len(tokens)):
            weights = [
                math.exp(q[i] @ k[j] / math.sqrt(head)) if seen[i][j] else 0.0
                for j in range(len(tokens))
            ]
            mixed[i, h] = sum(w * qkv[j, 2, h] for j, w in enumerate(weights)) / sum(weights)
    wanted = mixed.reshape(len(tokens), -1) @ state["proj.weight"].T + state["proj.bias"]
    assert np.abs(found[0].numpy() - wanted).max() < 1e-12
    assert np.abs(last[0].numpy() - wanted[-len(tokens) // FRAMES :]).max() < 1e-12
