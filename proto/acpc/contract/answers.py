"""Answers of the diagnostics: pairs, pools, plans."""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np

from acpc.arrays import NDArray
from acpc.contract.messages import Wire
from acpc.contract.provenance import Receipt, Timing
from acpc.contract.record import Columns, Record, Tabular, cell, columns_of
from acpc.v1 import diagnostic_service_pb2 as pb


class ErrorDrift(Record, Wire[pb.ErrorDrift]):
    clean_error: float
    perturbed_error: float
    drift: float
    bound: float


class PairResult(Record, Wire[pb.PairResult]):
    spec_index: int
    draw: int
    acpc: float
    acpc_one_step: float
    step_distances: tuple[float, ...]
    encoder_shift: float
    error_drift: ErrorDrift | None


class PairComparison(Tabular, Record, Wire[pb.ComparePairResponse]):
    request_id: str = field(default="", kw_only=True)
    results: tuple[PairResult, ...]
    receipt: Receipt
    timing: Timing = field(default_factory=Timing)

    def table(self) -> Columns:
        """A row per view; the drift of the prediction error is None without an observed future."""
        names = ("spec_index", "draw", "acpc", "acpc_one_step", "encoder_shift")
        drifts = [result.error_drift for result in self.results]
        return {
            **columns_of(self.results, *names),
            "error_drift": [found and found.drift for found in drifts],
            "drift_bound": [found and found.bound for found in drifts],
        }

    def shown(self) -> Columns:
        """The table, without drifts where no future was observed."""
        return {name: held for name, held in self.table().items() if held.count(None) < len(held)}

    def headline(self) -> str:
        """The largest distance."""
        largest = max((result.acpc for result in self.results), default=0.0)
        views = "1 view" if len(self.results) == 1 else f"{len(self.results)} views"
        return f"{views}; largest ACPC {largest:.6g}"


Values = NDArray[np.float64]
ActionBlocks = NDArray[np.float32]


class SelectionCertificate(Record, Wire[pb.SelectionCertificate]):
    certified: bool
    margin: float


class SoftmaxBounds(Record, Wire[pb.SoftmaxBounds]):
    lower: Values
    upper: Values
    displacement: float
    total_variation: float


class CleanGaps(Record, Wire[pb.CleanGaps]):
    top1: float
    elite: float | None


class ViewCertificate(Record, Wire[pb.ViewCertificate]):
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


class CertifiedSeverity(Record, Wire[pb.CertifiedSeverity]):
    kind: str
    top1: float | None
    elite: float | None


class DrawsBound(Record, Wire[pb.DrawsBound]):
    spec_index: int
    draws: int
    uncertified: int
    share: float

    @property
    def percent(self) -> str:
        """The share, rounded up."""
        return f"{math.ceil(1000 * self.share) / 10:g} %"

    def __str__(self) -> str:
        """The bound in words."""
        return (
            f"at most {self.percent} of all draws may change it "
            f"({self.uncertified} of {self.draws} not certified; 95 % confidence)"
        )


def _both(found: CleanGaps | CertifiedSeverity, elites: bool = True) -> str:
    return f"winner {cell(found.top1)}{f', elite set {cell(found.elite)}' if elites else ''}"


_MEANING = (
    "certified: views whose choice is proven to be the clean one; may change: the share of all "
    "draws that may change it, at most, with 95 % confidence"
)
_ITERATIONS = (
    "iterations: whose elite set is certified; parts at: the first whose elite sets differ; "
    "regret: what the other plan costs more on the clean history"
)


class PoolCertificate(Tabular, Record, Wire[pb.CertifyPoolResponse]):
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

    def shown(self) -> Columns:
        """A row per perturbation and choice, the winner or the elite set: what is certified."""
        rows = []
        for index in dict.fromkeys(view.spec_index for view in self.views):
            views = [view for view in self.views if view.spec_index == index]
            changes = f"{sum(x.perturbed_winner != self.clean_winner for x in views)}/{len(views)}"
            for choice, found, changed, bounds in (
                ("winner", [x.top1 for x in views], changes, self.top1_may_change),
                ("elite set", [x.elite for x in views if x.elite], None, self.elite_may_change),
            ):
                certified = f"{sum(one.certified for one in found)}/{len(found)}"
                margin = min((one.margin for one in found), default=None)
                bound = next((one.percent for one in bounds if one.spec_index == index), None)
                if found:
                    rows.append((index, choice, certified, margin, changed, bound))
        names = ("spec_index", "choice", "certified", "smallest margin", "changes", "may change")
        return {name: [row[at] for row in rows] for at, name in enumerate(names)}

    def meaning(self) -> str:
        """What the columns say, the gaps of the clean costs, and the severities that hold."""
        sentences = [_MEANING]
        elites = any(view.elite is not None for view in self.views)
        if self.clean_gaps is not None:
            held = _both(self.clean_gaps, elites)
            sentences.append(f"clean gap that the bounds must not close: {held}")
        for one in self.certified_severities:
            sentences.append(f"largest certified severity of {one.kind}: {_both(one, elites)}")
        return "; ".join(sentences)

    def headline(self) -> str:
        """Counts the certified views, for the winner and for the elite set."""
        certified = sum(view.top1.certified for view in self.views)
        words = f"winner certified under {certified} of {len(self.views)} views"
        held = [view.elite.certified for view in self.views if view.elite is not None]
        return f"{words}, elite set under {sum(held)}" if held else words


class SampledPool(Record, Wire[pb.PlanCertificate]):
    candidates: NDArray[np.float32]
    certificate: PoolCertificate


class PoolChoice(Record, Wire[pb.PoolChoice]):
    costs: NDArray[np.float64]
    elites: NDArray[np.int64]


class PairedIteration(Record, Wire[pb.PairedIteration]):
    elite: SelectionCertificate
    top1: SelectionCertificate
    same_elites: bool
    acpc_one_step_q90: float
    acpc_q90: float
    displacement_q90: float | None = None
    bound_violations: int | None = None
    choice: PoolChoice | None = None


class PairedPlan(Record, Wire[pb.PairedPlan]):
    spec_index: int
    draw: int
    perturbed_plan: ActionBlocks
    iterations: tuple[PairedIteration, ...]
    first_divergence: int | None
    certified: bool
    selection_regret: float


class PairedPlans(Tabular, Record, Wire[pb.PlanPairedResponse]):
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

    def shown(self) -> Columns:
        """A row per view in short words, with how many iterations are certified."""
        certified = [[one.elite.certified for one in view.iterations] for view in self.views]
        bounds = {bound.spec_index: bound.percent for bound in self.plan_may_change}
        return {
            **columns_of(self.views, "spec_index", "draw", "certified"),
            "iterations": [f"{sum(held)}/{len(held)}" for held in certified],
            "parts at": [view.first_divergence for view in self.views],
            "regret": [view.selection_regret for view in self.views],
            "may change": [bounds.get(view.spec_index) for view in self.views],
        }

    def meaning(self) -> str:
        """What the columns say, and the smallest gaps of the clean run."""
        words = f"{_MEANING}; {_ITERATIONS}"
        if not self.clean_gaps:
            return words
        elites = (gaps.elite for gaps in self.clean_gaps if gaps.elite is not None)
        least = CleanGaps(min(gaps.top1 for gaps in self.clean_gaps), min(elites, default=None))
        return f"{words}; smallest clean gap of an iteration: {_both(least)}"

    def headline(self) -> str:
        """Counts the certified plans."""
        certified = sum(view.certified for view in self.views)
        return f"plan certified under {certified} of {len(self.views)} views"
