"""Answers of ComparePair and ComparePairs."""

from __future__ import annotations

from dataclasses import dataclass

from acpc.contract import Record
from acpc.v1 import diagnostic_service_pb2 as pb

from acpc_client.errors import AcpcError, MalformedAnswer, from_status
from acpc_client.results.provenance import Receipt, Timing


@dataclass(frozen=True, repr=False, eq=False)
class ErrorDrift(Record):
    """Prediction errors against one observed future.

    Attributes:
        clean_error: Of the rollout from the clean history.
        perturbed_error: Of the rollout from the other view.
        drift: ``|perturbed_error - clean_error|``; never above ``bound``.
        bound: The proven bound on the drift, which is ACPC_H.
    """

    clean_error: float
    perturbed_error: float
    drift: float
    bound: float

    @classmethod
    def from_message(cls, message: pb.ErrorDrift) -> ErrorDrift:
        """Reads the wire form."""
        return cls(message.clean_error, message.perturbed_error, message.drift, message.bound)


@dataclass(frozen=True, repr=False, eq=False)
class PairResult(Record):
    """One view against the clean history.

    Attributes:
        spec_index: Index into the perturbations; zero for explicit views.
        draw: Draw index within the spec; the view index for explicit views.
        acpc: ACPC_H, the weighted distance between the two predicted rollouts.
        acpc_one_step: ACPC_1, the same after one predicted step.
        step_distances: Distance after each predicted step, length H.
        encoder_shift: l2 distance of the stacked history latents.
        error_drift: Present when the request carried an observed future.
    """

    spec_index: int
    draw: int
    acpc: float
    acpc_one_step: float
    step_distances: tuple[float, ...]
    encoder_shift: float
    error_drift: ErrorDrift | None

    @classmethod
    def from_message(cls, message: pb.PairResult) -> PairResult:
        """Reads the wire form."""
        drift = message.error_drift if message.HasField("error_drift") else None
        return cls(
            spec_index=message.spec_index,
            draw=message.draw,
            acpc=message.acpc,
            acpc_one_step=message.acpc_one_step,
            step_distances=tuple(message.step_distances),
            encoder_shift=message.encoder_shift,
            error_drift=None if drift is None else ErrorDrift.from_message(drift),
        )


@dataclass(frozen=True, repr=False, eq=False)
class PairComparison(Record):
    """Answer of ``compare_pair``: one result per view, spec-major, then draw."""

    request_id: str
    results: tuple[PairResult, ...]
    receipt: Receipt
    timing: Timing

    @classmethod
    def from_message(cls, message: pb.ComparePairResponse) -> PairComparison:
        """Reads the wire form."""
        return cls(
            request_id=message.request_id,
            results=tuple(PairResult.from_message(result) for result in message.results),
            receipt=Receipt.from_message(message.receipt),
            timing=Timing.from_message(message.timing),
        )


@dataclass(frozen=True, repr=False, eq=False)
class PairOutcome(Record):
    """Answer to one pair of ``compare_pairs``: a comparison or an error, never both."""

    pair_id: str
    comparison: PairComparison | None
    error: AcpcError | None

    @classmethod
    def from_message(cls, message: pb.ComparePairsResponse) -> PairOutcome:
        """Reads the wire form."""
        match message.WhichOneof("outcome"):
            case "response":
                comparison = PairComparison.from_message(message.response)
                return cls(message.pair_id, comparison, None)
            case "error":
                return cls(message.pair_id, None, from_status(message.error))
            case _:
                raise MalformedAnswer(f"pair {message.pair_id!r}: neither a response nor an error")

    def unwrap(self) -> PairComparison:
        """The comparison.

        Raises:
            AcpcError: The pair failed.
        """
        if self.error is not None:
            raise self.error
        if self.comparison is None:
            raise MalformedAnswer(f"pair {self.pair_id!r}: neither a response nor an error")
        return self.comparison
