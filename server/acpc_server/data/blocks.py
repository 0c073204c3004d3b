"""Action blocks: the environment actions between two kept frames, as the model takes them."""

import numpy as np
from jaxtyping import Float, Float32

from acpc_server.data.statistics import ColumnStatistics
from acpc_server.errors import InvalidArgument


def action_blocks(
    actions: Float[np.ndarray, "n rows width"], statistics: ColumnStatistics, *, frameskip: int
) -> Float32[np.ndarray, "n blocks block_width"]:
    """Normalises actions per coordinate and joins ``frameskip`` consecutive ones into a block.

    Block k holds the actions that leave kept frame k, so a window of h + H frames gives h + H - 1
    blocks. NaN, which files hold at the end of an episode, becomes 0 after normalising: the mean
    action.

    Args:
        actions: Consecutive environment actions from each window's first frame on.
        statistics: Of the whole action column.
        frameskip: Actions in a block.

    Returns:
        Block width is ``frameskip * width``, step-major.

    Raises:
        InvalidArgument: ``rows`` is not a multiple of ``frameskip``.
    """
    n, rows, width = actions.shape
    if rows % frameskip:
        raise InvalidArgument("frameskip", f"is {frameskip}, which does not divide {rows} actions")
    normalised = np.nan_to_num(statistics.standardise(actions), nan=0.0)
    blocks: np.ndarray = normalised.reshape(n, rows // frameskip, frameskip * width)
    return blocks.astype(np.float32)  # (n, blocks, frameskip * width)
