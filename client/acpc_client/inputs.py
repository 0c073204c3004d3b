"""One pair of a stream, and the check of whole numbers that no record of the contract holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from acpc.contract import ArgumentError, Perturbation
from numpy.typing import NDArray

Count = TypeVar("Count", int, int | None)


def unsigned(value: Count, name: str, bits: int = 32) -> Count:
    """``value`` itself, once it is known to fit an unsigned field of the contract.

    Raises:
        ArgumentError: It does not.
    """
    if value is not None and not 0 <= value < 2**bits:
        raise ArgumentError(name, f"found {value}, wanted an integer in [0, 2**{bits})")
    return value


@dataclass(frozen=True, eq=False)
class Pair:
    """One question of ``compare_pairs``; the fields mean what they mean in ``compare_pair``."""

    history: NDArray[Any]
    action_blocks: NDArray[Any]
    perturbations: Perturbation | Sequence[Perturbation] = ()
    views: NDArray[Any] | None = None
    draws: int = 1
    seed: int = 0
    anchor: int = 0
    observed_future: NDArray[Any] | None = None
    proprio: NDArray[Any] | None = None
    future_proprio: NDArray[Any] | None = None
    weights: Sequence[float] = ()
    pair_id: str = ""
