"""Answers of Plan and PlanPaired."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from acpc.contract import Record
from acpc.v1 import diagnostic_service_pb2 as pb
from numpy.typing import NDArray

from acpc_client.codec import from_tensor
from acpc_client.results.base import optional
from acpc_client.results.pools import PoolCertificate, SelectionCertificate
from acpc_client.results.provenance import Receipt, Timing

Plan = NDArray[np.float32]


@dataclass(frozen=True, repr=False, eq=False)
class SampledPool(Record):
    """Answer of ``certify_proposal``: the pool the server sampled, and its certificate.

    Attributes:
        candidates: float32 (candidates, H, block width); candidate 0 is the mean.
        certificate: Its costs and indices are those of ``candidates``.
    """

    candidates: NDArray[np.float32]
    certificate: PoolCertificate

    @classmethod
    def from_message(cls, message: pb.PlanCertificate) -> SampledPool:
        """Reads the wire form."""
        candidates: NDArray[Any] = from_tensor(message.candidates, "candidates")
        return cls(candidates, PoolCertificate.from_message(message.certificate))


@dataclass(frozen=True, repr=False, eq=False)
class PairedIteration(Record):
    """One iteration of the clean run, judged from one view.

    Attributes:
        elite: Certificate of the elite set.
        top1: Certificate of the winner.
        same_elites: Whether both runs chose the same elite set.
        acpc_one_step_q90: 90 % quantile of ACPC_1 over candidates.
        acpc_q90: 90 % quantile of ACPC_H over candidates.
    """

    elite: SelectionCertificate
    top1: SelectionCertificate
    same_elites: bool
    acpc_one_step_q90: float
    acpc_q90: float

    @classmethod
    def from_message(cls, message: pb.PairedIteration) -> PairedIteration:
        """Reads the wire form."""
        return cls(
            elite=SelectionCertificate.from_message(message.elite),
            top1=SelectionCertificate.from_message(message.top1),
            same_elites=message.same_elites,
            acpc_one_step_q90=message.acpc_one_step_q90,
            acpc_q90=message.acpc_q90,
        )


@dataclass(frozen=True, repr=False, eq=False)
class PairedPlan(Record):
    """The CEM run from one view beside the clean one.

    Attributes:
        spec_index: Index into the perturbations; zero for explicit views.
        draw: Draw index within the spec; the view index for explicit views.
        perturbed_plan: float32 (H, block width).
        iterations: One per CEM iteration.
        first_divergence: First iteration whose elite sets differ; None when none does.
        certified: Every iteration was certified, so the plans provably agree.
        selection_regret: (C_h(perturbed plan) - C_h(clean plan))_+.
    """

    spec_index: int
    draw: int
    perturbed_plan: Plan
    iterations: tuple[PairedIteration, ...]
    first_divergence: int | None
    certified: bool
    selection_regret: float

    @classmethod
    def from_message(cls, message: pb.PairedPlan) -> PairedPlan:
        """Reads the wire form."""
        return cls(
            spec_index=message.spec_index,
            draw=message.draw,
            perturbed_plan=from_tensor(message.perturbed_plan, "views.perturbed_plan"),
            iterations=tuple(map(PairedIteration.from_message, message.iterations)),
            first_divergence=optional(message, "first_divergence"),
            certified=message.certified,
            selection_regret=message.selection_regret,
        )


@dataclass(frozen=True, repr=False, eq=False)
class PairedPlans(Record):
    """Answer of ``plan_paired``.

    Attributes:
        clean_plan: float32 (H, block width).
        views: One per view, spec-major, then draw.
    """

    request_id: str
    clean_plan: Plan
    views: tuple[PairedPlan, ...]
    receipt: Receipt
    timing: Timing

    @classmethod
    def from_message(cls, message: pb.PlanPairedResponse) -> PairedPlans:
        """Reads the wire form."""
        return cls(
            request_id=message.request_id,
            clean_plan=from_tensor(message.clean_plan, "clean_plan"),
            views=tuple(map(PairedPlan.from_message, message.views)),
            receipt=Receipt.from_message(message.receipt),
            timing=Timing.from_message(message.timing),
        )
