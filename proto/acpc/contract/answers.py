"""Answers of the diagnostics: pairs, pools, plans."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from acpc.arrays import NDArray
from acpc.contract.messages import Wire
from acpc.contract.provenance import Receipt, Timing
from acpc.contract.record import Columns, Record, Tabular, columns_of
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
        names = ("spec_index", "draw", "acpc", "acpc_one_step", "encoder_shift")
        drift = [result.error_drift and result.error_drift.drift for result in self.results]
        return {**columns_of(self.results, *names), "error_drift": drift}

    def headline(self) -> str:
        """The largest distance."""
        largest = max((result.acpc for result in self.results), default=0.0)
        views = "1 view" if len(self.results) == 1 else f"{len(self.results)} views"
        return f"{views}; largest ACPC {largest:.6g}"


Values = NDArray[np.float64]
ActionBlocks = NDArray[np.float32]


@dataclass(frozen=True, repr=False, eq=False)
class SelectionCertificate(Record, Wire[pb.SelectionCertificate]):
    """Whether a view provably leaves a selection unchanged.

    Attributes:
        certified: True only if exact arithmetic on the same endpoints certifies too.
        margin: A lower bound on the smallest gap minus the bounds; certified when > 0.
    """

    certified: bool
    margin: float


@dataclass(frozen=True, repr=False, eq=False)
class SoftmaxBounds(Record, Wire[pb.SoftmaxBounds]):
    """Where the softmax mean of a pool stays, whatever a view does to costs within their bounds.

    Attributes:
        lower: Least mean, float64 (H, block width).
        upper: Greatest mean, alike.
        displacement: Farthest that a coordinate can be from ``softmax_mean``, in units of actions.
        total_variation: Total variation distance of the softmax weights at most, in [0, 1].
    """

    lower: Values
    upper: Values
    displacement: float
    total_variation: float


@dataclass(frozen=True, repr=False, eq=False)
class CleanGaps(Record, Wire[pb.CleanGaps]):
    """How far the clean costs of what was chosen lie from those of what was not.

    Attributes:
        top1: The lowest cost of another choice minus the winner's; infinite for a pool of one.
        elite: The least lead of an elite over another choice outside; None without an elite count.
    """

    top1: float
    elite: float | None


@dataclass(frozen=True, repr=False, eq=False)
class ViewCertificate(Record, Wire[pb.ViewCertificate]):
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
        kept: Certificate of the elite set with its kept elites; None without ``kept_elites``.
        softmax: Where the softmax mean stays; None without a temperature.
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
    kept: SelectionCertificate | None = None
    softmax: SoftmaxBounds | None = None


@dataclass(frozen=True, repr=False, eq=False)
class CertifiedSeverity(Record, Wire[pb.CertifiedSeverity]):
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
class DrawsBound(Record, Wire[pb.DrawsBound]):
    """How large a share of all draws of a random perturbation may change a choice.

    The exact bound of Clopper and Pearson from the draws of one answer, with 95 % confidence, for
    this choice on this history, where neither was chosen after a look at these draws. It says
    nothing of other histories, pools or perturbations.

    Attributes:
        spec_index: Index into the perturbations.
        draws: Independent draws of it in this answer.
        uncertified: Those whose choice is not certified.
        share: At most this share of all draws may change the choice, in (0, 1]; 1 where none of
            the draws is certified.
    """

    spec_index: int
    draws: int
    uncertified: int
    share: float

    def __str__(self) -> str:
        """The bound in words."""
        return (
            f"at most {math.ceil(1000 * self.share) / 10:g} % of all draws may change it "
            f"({self.uncertified} of {self.draws} not certified; 95 % confidence)"
        )


@dataclass(frozen=True, repr=False, eq=False)
class PoolCertificate(Tabular, Record, Wire[pb.CertifyPoolResponse]):
    """Answer of ``certify_pool``.

    Attributes:
        clean_costs: C_j, float64 (candidates,).
        clean_winner: Index of the lowest clean cost.
        clean_elites: Indices of the k lowest clean costs, lowest first.
        views: One certificate per view, spec-major, then draw.
        top1_certified_fraction: Fraction of views whose winner provably cannot change.
        elite_certified_fraction: The same for the elite set.
        clean_gaps: What the bounds are held against; None from a server that does not tell.
        softmax_mean: With a temperature, the softmax mean of the clean costs, float64 (H, block
            width), over the elite set where there is one; None without.
        top1_may_change: For each perturbation that is random, how often its draws may change the
            winner, with 95 % confidence.
        elite_may_change: The same for the elite set; empty without an elite count.
        distinct_candidates: How many choices there are: candidates of equal actions, offsets and
            infeasible marks are one. None from a server that does not tell.
    """

    request_id: str = field(default="", kw_only=True)
    clean_costs: Values
    clean_winner: int
    clean_elites: tuple[int, ...]
    views: tuple[ViewCertificate, ...]
    top1_certified_fraction: float
    elite_certified_fraction: float
    certified_severities: tuple[CertifiedSeverity, ...]
    receipt: Receipt
    timing: Timing = field(default_factory=Timing)
    clean_gaps: CleanGaps | None = None
    softmax_mean: Values | None = None
    top1_may_change: tuple[DrawsBound, ...] = ()
    elite_may_change: tuple[DrawsBound, ...] = ()
    distinct_candidates: int | None = None

    def table(self) -> Columns:
        """A row per view: certificates, and what the view would have chosen."""
        views = self.views
        last = ("excess_cost", "excess_cost_bound", "acpc_one_step_q90", "acpc_q90")
        columns = {
            **columns_of(views, "spec_index", "draw"),
            "top1_certified": [view.top1.certified for view in views],
            "top1_margin": [view.top1.margin for view in views],
            "winner_changes": [view.perturbed_winner != self.clean_winner for view in views],
            **columns_of(views, *last),
        }
        if any(view.elite is not None for view in views):
            columns["elite_certified"] = [v.elite and v.elite.certified for v in views]
            columns["elite_margin"] = [v.elite and v.elite.margin for v in views]
        return columns

    def headline(self) -> str:
        """Counts the certified views, for the winner and for the elite set."""
        certified = sum(view.top1.certified for view in self.views)
        words = f"winner certified under {certified} of {len(self.views)} views"
        held = [view.elite.certified for view in self.views if view.elite is not None]
        return f"{words}, elite set under {sum(held)}" if held else words


@dataclass(frozen=True, repr=False, eq=False)
class SampledPool(Record, Wire[pb.PlanCertificate]):
    """Answer of ``certify_proposal``: the pool the server sampled, and its certificate.

    Attributes:
        candidates: float32 (candidates, H, block width); candidate 0 is the mean.
        certificate: Its costs and indices are those of ``candidates``.
    """

    candidates: NDArray[np.float32]
    certificate: PoolCertificate


@dataclass(frozen=True, repr=False, eq=False)
class PoolChoice(Record, Wire[pb.PoolChoice]):
    """A CEM run's pool, costs and choice in one iteration.

    Attributes:
        costs: Cost of each candidate of the run's pool, float64 (candidates,).
        elites: Elite candidates, best first, int64 (elites,).
    """

    costs: NDArray[np.float64]
    elites: NDArray[np.int64]


@dataclass(frozen=True, repr=False, eq=False)
class PairedIteration(Record, Wire[pb.PairedIteration]):
    """One iteration of the clean run, judged from one view.

    Attributes:
        elite: Certificate of the elite set.
        top1: Certificate of the winner.
        same_elites: Whether both runs chose the same elite set.
        acpc_one_step_q90: 90 % quantile of ACPC_1 over candidates.
        acpc_q90: 90 % quantile of ACPC_H over candidates.
        displacement_q90: 90 % quantile of the final-step distance r_j over candidates.
        bound_violations: Candidates whose cost changes by more than b_j, or whose distance from
            the goal, held for all steps, by more than ACPC_H; a correct measurement has none.
        choice: Of the perturbed run, whose pool is its own once its elite set has differed; None
            unless the request asks for choices.
    """

    elite: SelectionCertificate
    top1: SelectionCertificate
    same_elites: bool
    acpc_one_step_q90: float
    acpc_q90: float
    displacement_q90: float | None = None
    bound_violations: int | None = None
    choice: PoolChoice | None = None


@dataclass(frozen=True, repr=False, eq=False)
class PairedPlan(Record, Wire[pb.PairedPlan]):
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
    perturbed_plan: ActionBlocks
    iterations: tuple[PairedIteration, ...]
    first_divergence: int | None
    certified: bool
    selection_regret: float


@dataclass(frozen=True, repr=False, eq=False)
class PairedPlans(Tabular, Record, Wire[pb.PlanPairedResponse]):
    """Answer of ``plan_paired``.

    Attributes:
        clean_plan: float32 (H, block width).
        views: One per view, spec-major, then draw.
        clean_gaps: Of the clean run, one per CEM iteration.
        clean_choices: The same, where the request asks for choices.
        plan_may_change: For each perturbation that is random, how often its draws may change the
            plan, with 95 % confidence.
    """

    request_id: str = field(default="", kw_only=True)
    clean_plan: ActionBlocks
    views: tuple[PairedPlan, ...]
    receipt: Receipt
    timing: Timing = field(default_factory=Timing)
    clean_gaps: tuple[CleanGaps, ...] = ()
    clean_choices: tuple[PoolChoice, ...] = ()
    plan_may_change: tuple[DrawsBound, ...] = ()

    def table(self) -> Columns:
        """Returns a row per view: certified or not, first divergence, and the regret of it."""
        names = ("spec_index", "draw", "certified", "first_divergence", "selection_regret")
        return columns_of(self.views, *names)

    def headline(self) -> str:
        """Counts the certified plans."""
        certified = sum(view.certified for view in self.views)
        return f"plan certified under {certified} of {len(self.views)} views"
