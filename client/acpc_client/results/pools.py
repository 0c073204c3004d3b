"""Answers of CertifyPool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from acpc.contract import Record
from acpc.v1 import diagnostic_service_pb2 as pb
from numpy.typing import NDArray

from acpc_client.codec import from_tensor
from acpc_client.results.base import optional
from acpc_client.results.provenance import Receipt, Timing

Values = NDArray[np.float64]


@dataclass(frozen=True, repr=False, eq=False)
class SelectionCertificate(Record):
    """Whether a view provably leaves a selection unchanged.

    Attributes:
        certified: True only if exact arithmetic on the same endpoints certifies too.
        margin: A lower bound on the smallest gap minus the bounds; certified when > 0.
    """

    certified: bool
    margin: float

    @classmethod
    def from_message(cls, message: pb.SelectionCertificate) -> SelectionCertificate:
        """Reads the wire form."""
        return cls(message.certified, message.margin)


@dataclass(frozen=True, repr=False, eq=False)
class ViewCertificate(Record):
    """One view of the history against the candidate pool; arrays are float64 (candidates,).

    Attributes:
        spec_index: Index into the perturbations; zero for explicit views.
        draw: Draw index within the spec; the view index for explicit views.
        perturbed_costs: Costs seen from this view.
        displacements: Endpoint displacements r_j.
        bounds: Cost-change bounds b_j.
        chained_bounds: b_j through ACPC_H / sqrt(alpha_H).
        acpc_one_step: ACPC_1 of every candidate.
        acpc: ACPC_H of every candidate.
        perturbed_winner: Index of the lowest perturbed cost.
        excess_cost: Clean cost of the perturbed winner minus the clean winner's.
        excess_cost_bound: Its proven bound.
        top1: Certificate of the winner.
        elite: Certificate of the elite set; None without an elite count.
        acpc_one_step_q90: 90 % quantile of ACPC_1 over candidates.
        acpc_q90: 90 % quantile of ACPC_H over candidates.
    """

    spec_index: int
    draw: int
    perturbed_costs: Values
    displacements: Values
    bounds: Values
    chained_bounds: Values
    acpc_one_step: Values
    acpc: Values
    perturbed_winner: int
    excess_cost: float
    excess_cost_bound: float
    top1: SelectionCertificate
    elite: SelectionCertificate | None
    acpc_one_step_q90: float
    acpc_q90: float

    @classmethod
    def from_message(cls, message: pb.ViewCertificate) -> ViewCertificate:
        """Reads the wire form."""
        arrays: dict[str, NDArray[Any]] = {
            name: from_tensor(getattr(message, name), f"views.{name}")
            for name in (
                "perturbed_costs", "displacements", "bounds", "chained_bounds",
                "acpc_one_step", "acpc",
            )
        }  # fmt: skip
        elite = message.elite if message.HasField("elite") else None
        return cls(
            spec_index=message.spec_index,
            draw=message.draw,
            **arrays,
            perturbed_winner=message.perturbed_winner,
            excess_cost=message.excess_cost,
            excess_cost_bound=message.excess_cost_bound,
            top1=SelectionCertificate.from_message(message.top1),
            elite=None if elite is None else SelectionCertificate.from_message(elite),
            acpc_one_step_q90=message.acpc_one_step_q90,
            acpc_q90=message.acpc_q90,
        )


@dataclass(frozen=True, repr=False, eq=False)
class CertifiedSeverity(Record):
    """Largest severity of one kind up to which every draw is certified; None: not even the mildest.

    Attributes:
        kind: Field name of the kind in the contract, for example ``"gaussian_noise"``.
        top1: For the winner.
        elite: For the elite set.
    """

    kind: str
    top1: float | None
    elite: float | None


@dataclass(frozen=True, repr=False, eq=False)
class PoolCertificate(Record):
    """Answer of ``certify_pool``.

    Attributes:
        clean_costs: C_j, float64 (candidates,).
        clean_winner: Index of the lowest clean cost.
        clean_elites: Indices of the k lowest clean costs, lowest first.
        views: One certificate per view, spec-major, then draw.
        top1_certified_fraction: Fraction of views whose winner provably cannot change.
        elite_certified_fraction: The same for the elite set.
    """

    request_id: str
    clean_costs: Values
    clean_winner: int
    clean_elites: tuple[int, ...]
    views: tuple[ViewCertificate, ...]
    top1_certified_fraction: float
    elite_certified_fraction: float
    certified_severities: tuple[CertifiedSeverity, ...]
    receipt: Receipt
    timing: Timing

    @classmethod
    def from_message(cls, message: pb.CertifyPoolResponse) -> PoolCertificate:
        """Reads the wire form."""
        return cls(
            request_id=message.request_id,
            clean_costs=from_tensor(message.clean_costs, "clean_costs"),
            clean_winner=message.clean_winner,
            clean_elites=tuple(message.clean_elites),
            views=tuple(ViewCertificate.from_message(view) for view in message.views),
            top1_certified_fraction=message.top1_certified_fraction,
            elite_certified_fraction=message.elite_certified_fraction,
            certified_severities=tuple(
                CertifiedSeverity(s.kind, optional(s, "top1"), optional(s, "elite"))
                for s in message.certified_severities
            ),
            receipt=Receipt.from_message(message.receipt),
            timing=Timing.from_message(message.timing),
        )
