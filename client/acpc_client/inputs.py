"""Feeds pairs into a stream, and checks whole numbers that belong to no request class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from acpc.contract import ArgumentError, Array
from google.protobuf.message import Message

if TYPE_CHECKING:
    from acpc.contract import Perturbation

Count = TypeVar("Count", int, int | None)
Item = TypeVar("Item")


def unsigned(value: Count, name: str, bits: int = 32) -> Count:
    """``value`` itself, once it is known to fit an unsigned field of the contract.

    Raises ArgumentError: It does not.
    """
    if value is not None and not (isinstance(value, Integral) and 0 <= value < 2**bits):
        raise ArgumentError(name, f"found {value!r}, wanted an integer in [0, 2**{bits})")
    return value


@dataclass(frozen=True, eq=False)
class Pair:
    """One question of ``compare_pairs``; the fields mean what they mean in ``compare_pair``."""

    history: Array
    action_blocks: Array
    perturbations: Perturbation | Sequence[Perturbation] = ()
    views: Array | None = None
    draws: int = 1
    seed: int = 0
    anchor: int = 0
    observed_future: Array | None = None
    proprio: Array | None = None
    future_proprio: Array | None = None
    weights: Sequence[float] = ()
    pair_id: str = ""


class Feed(Generic[Item]):
    """Turns pairs into messages, answers into outcomes, and keeps what ended the pairs.

    gRPC reads requests in a thread or task of its own, where an exception would only be logged
    and the caller would see a bare CANCELLED.

    Args:
        encode: Makes the message of one pair.
        read: Makes the outcome of one answer.
    """

    def __init__(self, encode: Callable[[Pair], Message], read: Callable[[Any], Item]) -> None:
        self.encode, self.read = encode, read
        self._failure: BaseException | None = None

    def messages(self, pairs: Iterable[Pair]) -> Iterator[Message]:
        """The messages of ``pairs``; ends early at the first failure."""
        with self.kept():
            for pair in pairs:
                yield self.encode(pair)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keeps what the block raises, for :meth:`check`."""
        try:
            yield
        except Exception as failure:  # noqa: BLE001 - raised again by check()
            self._failure = failure

    def check(self) -> None:
        """Raises what ended the pairs early, if anything did."""
        if self._failure is not None:
            raise self._failure
