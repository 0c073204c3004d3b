"""Every window of a dataset as a number, without a list of them."""

import numpy as np
from jaxtyping import Int64

from acpc_server.errors import InvalidArgument


class WindowIndex:
    """All (episode, start) with ``start + num_steps * frameskip <= length``, episode-major.

    A window's index in this order is its identity, as in the public loaders.

    Args:
        lengths: Rows of each episode.
        num_steps: Kept frames in a window.
        frameskip: Environment steps between kept frames.

    Raises:
        InvalidArgument: ``num_steps`` or ``frameskip`` is below 1.
    """

    def __init__(
        self, lengths: Int64[np.ndarray, "episodes"], *, num_steps: int, frameskip: int
    ) -> None:
        for field, value in (("num_steps", num_steps), ("frameskip", frameskip)):
            if value < 1:
                raise InvalidArgument(field, f"is {value}; give at least 1")
        self.span = num_steps * frameskip
        self._ends = np.cumsum(np.maximum(lengths - self.span + 1, 0))

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._ends.size else 0

    @property
    def episodes(self) -> int:
        """Episodes that have a window."""
        return int(np.count_nonzero(np.diff(self._ends, prepend=0)))

    def locate(
        self, windows: Int64[np.ndarray, "n"]
    ) -> tuple[Int64[np.ndarray, "n"], Int64[np.ndarray, "n"]]:
        """Episode and start row within it of each window index.

        Raises:
            InvalidArgument: An index outside 0 to ``len(self) - 1``.
        """
        if windows.size and not 0 <= int(windows.min()) <= int(windows.max()) < len(self):
            raise InvalidArgument("windows", f"must lie between 0 and {len(self) - 1}")
        episode = np.searchsorted(self._ends, windows, side="right")
        before = np.concatenate([[0], self._ends])[episode]
        return episode.astype(np.int64), windows - before
