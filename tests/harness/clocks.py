"""A clock for what takes one in place of the system's."""

from dataclasses import dataclass


@dataclass
class Clock:
    """A clock that goes on when ``now`` is moved."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now
