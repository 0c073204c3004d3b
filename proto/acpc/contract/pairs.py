"""Answers of ComparePair and ComparePairs."""

from __future__ import annotations

from dataclasses import dataclass, field

from acpc.contract.messages import Wire
from acpc.contract.provenance import Receipt, Timing
from acpc.contract.record import Record
from acpc.contract.tabular import Columns, Tabular
from acpc.v1 import diagnostic_service_pb2 as pb


@dataclass(frozen=True, repr=False, eq=False)
class ErrorDrift(Record, Wire[pb.ErrorDrift]):
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


@dataclass(frozen=True, repr=False, eq=False)
class PairResult(Record, Wire[pb.PairResult]):
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


@dataclass(frozen=True, repr=False, eq=False)
class PairComparison(Tabular, Record, Wire[pb.ComparePairResponse]):
    """Answer of ``compare_pair``: one result per view, spec-major, then draw."""

    request_id: str = field(default="", kw_only=True)
    results: tuple[PairResult, ...]
    receipt: Receipt
    timing: Timing = field(default_factory=Timing)

    def table(self) -> Columns:
        """A row per view; the drift of the prediction error is None without an observed future."""
        found = self.results
        return {
            "spec_index": [result.spec_index for result in found],
            "draw": [result.draw for result in found],
            "acpc": [result.acpc for result in found],
            "acpc_one_step": [result.acpc_one_step for result in found],
            "encoder_shift": [result.encoder_shift for result in found],
            "error_drift": [result.error_drift and result.error_drift.drift for result in found],
        }

    def headline(self) -> str:
        """The largest distance."""
        largest = max((result.acpc for result in self.results), default=0.0)
        return f"{len(self.results)} views; largest ACPC {largest:.6g}"
