"""The options that methods take by keyword, and checks of numbers that no request class has.

A method that ends in ``**options: Unpack[PairOptions]`` takes the keys of ``PairOptions`` as
keyword arguments (PEP 692); what is not given has the server's default. The .proto comments of the
fields say what they are; here is what Python has of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Protocol, TypedDict, TypeVar

from acpc_client.errors import ArgumentError

if TYPE_CHECKING:
    from acpc.contract import (
        ApplyTo,
        Array,
        CemReturn,
        CheckpointRef,
        CostReduction,
        EvidenceOptions,
        NumericMode,
        Objective,
        Perturbation,
        ScoreProtocol,
        Thresholds,
        UntilDecided,
    )

Count = TypeVar("Count", int, int | None)
LONGEST_S = 1e9
"""Longest time that is asked of gRPC, 30 years; a deadline beyond 2262 has passed for it."""


class CallOptions(TypedDict, total=False):
    """Options of every computing call.

    Attributes:
        request_id: Kept over retries; the same id gives the same job. A fresh uuid4 when None.
    """

    numeric_mode: NumericMode
    request_id: str | None


class ViewOptions(CallOptions, total=False):
    """The other views of a history: ``perturbations`` that the server applies, or ``views``.

    Attributes:
        perturbations: The visual changes.
        views: Views of your own, uint8 (views, h, height, width, 3); of ``compare_pair`` also
            float32 in [0, 1].
        draws: Draws per perturbation; 1.
    """

    perturbations: Perturbation | Sequence[Perturbation]
    views: Array | None
    draws: int
    seed: int
    anchor: int
    proprio: Array | None


class PairOptions(ViewOptions, total=False):
    """Options of ``compare_pair``."""

    observed_future: Array | None
    future_proprio: Array | None
    weights: Sequence[float]


class PlannerOptions(ViewOptions, total=False):
    """Options of every question about a planner."""

    apply_to: ApplyTo
    past_blocks: Array | None
    goal_proprio: Array | None
    cost_reduction: CostReduction
    endpoint_tolerance: float
    objective: Objective | None


class CertifyOptions(PlannerOptions, total=False):
    """Options of ``certify_pool`` and ``plan``."""

    elite_count: int
    weights: Sequence[float]
    kept_elites: int
    temperature: float | None


class PoolOptions(CertifyOptions, total=False):
    """Options of ``certify_pool``.

    Attributes:
        infeasible: Those that break a constraint on their actions, bool (candidates,); None: none.
    """

    offsets: Array | None
    infeasible: Array | None


class PairedOptions(PlannerOptions, total=False):
    """Options of ``plan_paired``."""

    sampling_seed: int
    returns: CemReturn
    choices: bool


class ScoreOptions(CallOptions, total=False):
    """Options of ``score_checkpoint``.

    Attributes:
        reference: The unaugmented checkpoint of the same task, run and family. Without it relative
            IR is unknown and the screen can fail but not pass.
        until_decided: Measures more and more anchors and stops as soon as the verdict is
            certain; the anchors' count is the limit. None: measures all of them.
    """

    reference: str | CheckpointRef | None
    protocol: ScoreProtocol | None
    thresholds: Thresholds | None
    evidence: EvidenceOptions | None
    until_decided: UntilDecided | None


class Named(Protocol):
    """A job, or an operation."""

    @property
    def name(self) -> str:
        """``operations/<id>``."""
        ...


def check_options(given: Mapping[str, object], known: type) -> None:
    """Reject keywords that the call does not have, as Python does for named parameters.

    Raises TypeError: An option that ``known`` does not declare; lists the ones it does.
    """
    options: frozenset[str] = known.__optional_keys__  # type: ignore[attr-defined]
    for name in given:
        if name not in options:
            raise TypeError(f"unexpected option {name!r}; known: {', '.join(sorted(options))}")


def unsigned(value: Count, name: str) -> Count:
    """``value`` itself, once it is known to fit a uint32 of the contract.

    Raises ArgumentError: It does not.
    """
    if value is not None and not (isinstance(value, Integral) and 0 <= value < 2**32):
        raise ArgumentError(name, f"found {value!r}, wanted an integer in [0, 2**32)")
    return value


def check_timeout(timeout: float | None) -> float | None:
    """Returns ``timeout``, at most what gRPC takes, if it is None or positive.

    Raises ArgumentError: It is not positive.
    """
    if timeout is not None and not (isinstance(timeout, Real) and timeout > 0):
        raise ArgumentError("timeout", f"found {timeout!r}, wanted seconds above 0")
    return None if timeout is None else min(timeout, LONGEST_S)
