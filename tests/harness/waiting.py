"""How tests wait: for a condition, never for a time."""

import time
from collections.abc import Callable

GENEROUS_SECONDS = 120.0
"""A limit for what ends by itself; only a fault reaches it, on a busy machine too."""
LONGEST_PAUSE_SECONDS = 0.1


def wait_until(
    holds: Callable[[], object],
    what: str = "it never came to pass",
    *,
    pause: float = 0.01,
    seconds: float = GENEROUS_SECONDS,
) -> None:
    """Return once ``holds()`` is true; AssertionError with ``what`` if it never is.

    It looks ever more seldom: what is asked is often a server that others wait for, too.
    """
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up, what
        time.sleep(pause)
        pause = max(pause, min(1.2 * pause, LONGEST_PAUSE_SECONDS))
