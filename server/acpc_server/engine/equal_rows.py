"""Equal inputs get equal answers.

The last bits of a float32 row depend on its place in a batch, on the batch's size and on the number
of threads. Rows with equal inputs therefore share what the first of them gave. They stay in the
batch: its shape, and so the bits of every other row, are the same with and without equal rows.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def equal_rows(*columns: Tensor) -> Tensor | None:
    """For each row the index of the first row that equals it in every column.

    Args:
        columns: float32 on the CPU, (n, ...) each.

    Returns:
        int64 (n,); None where no two rows are equal.
    """
    head = np.sort(columns[0].flatten(1)[:, 0].numpy())
    if not (head[1:] == head[:-1]).any():  # what nearly every call finds, in microseconds
        return None
    # Adding 0 turns -0 into 0, so that equal numbers are equal bytes.
    joined = (torch.cat([column.flatten(1) for column in columns], dim=1) + 0.0).numpy()
    rows = joined.view(np.dtype((np.void, joined.strides[0])))[:, 0]
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    return None if len(first) == len(rows) else torch.from_numpy(first[inverse])


def share_rows(answers: Tensor, *columns: Tensor) -> Tensor:
    """The answers (n, ...), with those of the first of equal input rows for all of them."""
    first = equal_rows(*columns)
    return answers if first is None else answers[first]
