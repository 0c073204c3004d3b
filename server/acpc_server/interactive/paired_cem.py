"""A clean and a perturbed CEM run with common random numbers.

Appendix "Adaptive-CEM Selection-Regret Protocol" in the paper: both runs start from mean 0 and
standard deviation 1, share the random numbers of every iteration, and fit their proposal to their
own elites. Until their elite sets differ, the two runs evaluate the same pools; only there do
certificates say anything about the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, NamedTuple

import torch
from acpc.contract import (
    CemBudget,
    CemReturn,
    CleanGaps,
    PairedIteration,
    PairedPlan,
    PairedPlans,
    PoolChoice,
    SelectionCertificate,
    ViewCertificate,
    check,
)
from torch import Tensor

from acpc_server.encoding import View
from acpc_server.interactive.certificates import (
    QUANTILE,
    broken_bounds,
    certify_views,
    may_change,
)
from acpc_server.interactive.moment import EncodedMoment, Moment
from acpc_server.interactive.pieces import (
    Measures,
    Rolled,
    check_held,
    choices_of,
    clean_gaps,
    costs_of,
    group_size,
    join_costs,
    join_measures,
    measure,
    pieces_of,
    pool_calls,
    pool_cost,
    share_clean,
)
from acpc_server.numerics import (
    CemProposal,
    elite_indices,
    fit_proposal,
    horizon_weights,
    initial_proposal,
    linear_quantile,
    pool_normals,
    sample_pool,
)
from acpc_server.scheduling import RequestContext

Returns = Literal["mean", "best"]
RETURNS: dict[CemReturn, Returns] = {CemReturn.MEAN: "mean", CemReturn.BEST: "best"}
LEADERS = 4
"""Choices of lowest clean cost that are kept of an iteration."""
UNCERTIFIED = SelectionCertificate(certified=False, margin=float("-inf"))


def check_budget(moment: Moment, budget: CemBudget) -> None:
    """Raise InvalidArgument for a budget that is out of range or over a limit; names its field."""
    check(budget, "budget")
    moment.check_work(
        f"{budget.iterations} iterations of {budget.candidates} candidates of {budget.horizon} "
        f"steps for a clean run and two pools for each of {moment.view_count} views",
        budget.candidates,
        budget.iterations * budget.horizon * (1 + 2 * moment.view_count),
        "budget.candidates",
    )
    check_held(moment, budget.horizon, "budget.horizon")
    start = initial_proposal(budget.horizon, moment.card.action_block_dim)
    pool_cost(moment, start.mean[None])


class _Run:
    """The state of one CEM run, and a perturbed one's iterations beside the clean run's."""

    def __init__(self, cem: PairedCem) -> None:
        self._cem = cem
        self._proposal = cem.start
        self._best = cem.start.mean
        self.choice: PoolChoice | None = None
        self.record: list[PairedIteration] = []

    def pool(self, iteration: int) -> Tensor:
        """Sample the candidates of this run at an iteration, (J, H, block width)."""
        return sample_pool(self._proposal, self._cem.normals(iteration))

    def advance(self, pool: Tensor, costs: Tensor) -> Tensor:
        """Fit the next proposal to a pool's elites by costs (J,); returns them sorted, (k,)."""
        elites = elite_indices(costs, self._cem.budget.elites)
        self._proposal = fit_proposal(pool, elites)
        self._best = pool[elites[0]]
        if self._cem.choices:
            self.choice = PoolChoice(costs.numpy(), elites.numpy())
        return elites.sort().values

    @property
    def plan(self) -> Tensor:
        """The plan that the run returns, (H, block width)."""
        return self._proposal.mean if self._cem.returns == "mean" else self._best


@dataclass(frozen=True)
class _Group:
    """Views that are rolled out together, each with its run."""

    views: Tensor  # histories, (views, h, dim)
    goals: Tensor  # (views, dim)
    runs: list[_Run]
    # Runs whose elites have differed from the clean run's, and so have pools of their own.
    apart: list[int] = field(default_factory=list)


class _Costs(NamedTuple):
    """Some candidates of each pool of a group, measured."""

    measures: Measures  # of the clean run's pool, under every view
    broken: list[int]  # candidates of it that break a bound, by view
    own: list[Tensor]  # costs of the pools of the runs that are apart, (J,) each


class PairedCem:
    """Paired CEM runs from one moment; the elite count is the budget's.

    They return the final mean, or the best candidate of the final pool; with ``choices`` also costs
    and elites of every iteration. Raises as :func:`check_budget`.
    """

    def __init__(
        self,
        encoded: EncodedMoment,
        budget: CemBudget,
        seed: int,
        returns: Returns,
        *,
        choices: bool = False,
    ) -> None:
        moment = encoded.asked
        check_budget(moment, budget)
        self.budget = budget
        self.returns = returns
        self.choices = choices
        self.start: CemProposal = initial_proposal(budget.horizon, moment.card.action_block_dim)
        self._moment = moment
        self._encoded = encoded
        self._seed = seed
        self._weights = horizon_weights((), budget.horizon)
        self.leaders: list[Tensor] = []  # of the clean run's pools, (LEADERS, H, width) each

    def run(self, context: RequestContext) -> PairedPlans:
        """Run the clean and every perturbed branch.

        Raises FailedPrecondition: A prediction is not finite; Cancelled, DeadlineExceeded,
        ResourceExhausted, Unavailable: From the engine.
        """
        moment, encoded, budget = self._moment, self._encoded, self.budget
        rows = (1 + 2 * len(encoded.views)) * budget.candidates
        context.price(pool_calls(moment, rows * budget.iterations, budget.horizon))
        clean, runs = _Run(self), [_Run(self) for _ in encoded.views]
        size = group_size(moment, 2 * budget.candidates, budget.horizon)
        groups = [
            _Group(encoded.views[part], encoded.goals[part], runs[part])
            for part in (slice(start, start + size) for start in range(0, len(runs), size))
        ]
        iterations = [self._iterate(t, clean, groups, context) for t in range(budget.iterations)]
        regrets = self._regrets(clean.plan, [run.plan for run in runs], context)
        views = tuple(
            self._paired_plan(view, runs[row], regrets[row]) for view, row in encoded.view_rows
        )
        plans = PairedPlans(
            clean_plan=clean.plan.numpy(),
            views=views,
            receipt=moment.receipt(
                {
                    "budget": asdict(self.budget),
                    "sampling_seed": self._seed,
                    "returns": self.returns,
                    "endpoint_tolerance": moment.request.endpoint_tolerance,
                },
                program=context.program,
            ),
            clean_gaps=tuple(gaps for gaps, _ in iterations),
            clean_choices=tuple(choice for _, choice in iterations if choice is not None),
            plan_may_change=may_change(moment.asked_views, [one.certified for one in views]),
        )
        moment.tally.count_plans(plans, context)
        return plans

    def _paired_plan(self, view: View, run: _Run, regret: float) -> PairedPlan:
        apart = (t for t, iteration in enumerate(run.record) if not iteration.same_elites)
        return PairedPlan(
            spec_index=view.spec_index,
            draw=view.draw,
            perturbed_plan=run.plan.numpy(),
            iterations=tuple(run.record),
            first_divergence=next(apart, None),
            certified=self._certified(run.record),
            selection_regret=regret,
        )

    def normals(self, iteration: int) -> Tensor:
        """Draw the common random numbers of an iteration, (J, H, block width)."""
        return pool_normals(
            self._seed,
            iteration,
            candidates=self.budget.candidates,
            horizon=self.budget.horizon,
            width=self._moment.card.action_block_dim,
        )

    def _iterate(
        self, t: int, clean: _Run, groups: Sequence[_Group], context: RequestContext
    ) -> tuple[CleanGaps, PoolChoice | None]:
        """Do one iteration of every run, in step, so that the device sees large batches."""
        moment, encoded, pool = self._moment, self._encoded, clean.pool(t)
        pools = [  # of a group's views that of the clean run, then those of the runs apart
            torch.stack([pool] * len(group.runs) + [group.runs[row].pool(t) for row in group.apart])
            for group in groups
        ]
        pieces = pieces_of(moment, max(map(len, pools)), *pool.shape[:2])
        costs: list[Tensor] = []
        seen: list[list[_Costs]] = [[] for _ in groups]
        for piece in pieces:
            rollouts = encoded.rollout(encoded.clean[None], pool[None, piece], context)[0]
            costs.append(self._costs(rollouts, pool[piece], encoded.goal))
            for group, own, found in zip(groups, pools, seen, strict=True):
                found.append(self._look(group, own[:, piece], rollouts, costs[-1], context))
        choices = choices_of(pool)
        whole = join_costs(costs, choices)
        elites = clean.advance(pool, whole)
        self.leaders.append(_leaders(pool, whole, choices))
        for group, own, found in zip(groups, pools, seen, strict=True):
            self._advance(group, own[len(group.runs) - 1 :], elites, found)
        return clean_gaps(whole, self.budget.elites, choices), clean.choice

    def _look(
        self, group: _Group, pools: Tensor, clean: Tensor, costs: Tensor, context: RequestContext
    ) -> _Costs:
        """Measure candidates of a group's pools, (n, J, H, width), and clean rollouts and costs."""
        moment, encoded, count = self._moment, self._encoded, len(group.runs)
        histories = torch.cat([group.views, group.views[group.apart]])
        rollouts = encoded.rollout(histories, pools, context)
        shared = share_clean(group.views, encoded.clean, rollouts[:count], clean)
        rolled = Rolled(clean, shared, encoded.goal, group.goals)
        measures = measure(moment, rolled, pool_cost(moment, pools[0]))
        broken = broken_bounds(encoded.goal, clean, shared, self._weights, measures, costs)
        alone = zip(rollouts[count:], pools[count:], group.goals[group.apart], strict=True)
        own = [self._costs(*one) for one in alone]
        return _Costs(measures, broken, own)

    def _advance(
        self,
        group: _Group,
        pools: Tensor,
        elites: Tensor,
        found: Sequence[_Costs],
    ) -> None:
        """End an iteration of a group's runs.

        ``pools`` are the clean run's, with its ``elites``, and those of the runs apart.
        """
        pool, *own = pools
        measures = join_measures([one.measures for one in found], choices_of(pool))
        k = self.budget.elites
        certificates = certify_views(self._moment, measures, self._weights, k, pool)
        broken = map(sum, zip(*(one.broken for one in found), strict=True))
        judged = [_iteration(*pair) for pair in zip(certificates, broken, strict=True)]
        apart = [*group.apart]
        for place, row in enumerate(apart):
            run = group.runs[row]
            costs = [one.own[place] for one in found]
            run.advance(own[place], join_costs(costs, choices_of(own[place])))
            alone = replace(judged[row], elite=UNCERTIFIED, top1=UNCERTIFIED, same_elites=False)
            run.record.append(replace(alone, choice=run.choice))
        for row in sorted({*range(len(group.runs))} - {*apart}):
            run = group.runs[row]
            chosen = run.advance(pool, torch.from_numpy(certificates[row].perturbed_costs))
            same = torch.equal(chosen, elites)
            run.record.append(replace(judged[row], same_elites=same, choice=run.choice))
            if not same:
                group.apart.append(row)

    def _costs(self, rollouts: Tensor, pool: Tensor, goal: Tensor) -> Tensor:
        """Compute the cost of every candidate of a pool, rolled out, (J, H, dim)."""
        moment = self._moment
        return costs_of(moment, pool_cost(moment, pool), rollouts, goal)

    def _certified(self, record: list[PairedIteration]) -> bool:
        """Apply Cor. adaptive-cem-alignment; to return the best candidate needs top-1 too."""
        elites = all(iteration.elite.certified for iteration in record)
        return elites and (self.returns == "mean" or record[-1].top1.certified)

    def _regrets(
        self, clean_plan: Tensor, plans: list[Tensor], context: RequestContext
    ) -> list[float]:
        """Compute (C_h(a~) - C_h(a))_+; equal plans are rolled out once, so theirs is exactly 0."""
        every = torch.stack([clean_plan, *plans])  # (1 + views, H, width)
        distinct, rows = torch.unique(every, dim=0, return_inverse=True)
        moment, encoded = self._moment, self._encoded
        pieces = pieces_of(moment, 1, *distinct.shape[:2])
        found = []
        for pool in (distinct[piece] for piece in pieces):
            rollouts = encoded.rollout(encoded.clean[None], pool[None], context)[0]
            found.append(self._costs(rollouts, pool, encoded.goal))
        costs = torch.cat(found)[rows]  # (1 + views,)
        return (costs[1:] - costs[0]).clamp(min=0).tolist()


def _leaders(pool: Tensor, costs: Tensor, choices: Tensor | None) -> Tensor:
    """Return the choices of lowest cost, the last again where few, (LEADERS, H, width)."""
    order = costs.argsort(stable=True)
    if choices is not None:
        order = order[choices[order] == order]  # the first of the copies of each
    return pool[order[torch.arange(LEADERS).clamp(max=len(order) - 1)]]


def _iteration(certificate: ViewCertificate, broken: int) -> PairedIteration:
    """Describe an iteration while both runs have chosen alike."""
    return PairedIteration(
        elite=certificate.elite or UNCERTIFIED,
        top1=certificate.top1,
        same_elites=True,
        acpc_one_step_q90=certificate.acpc_one_step_q90,
        acpc_q90=certificate.acpc_q90,
        displacement_q90=linear_quantile(torch.from_numpy(certificate.displacements), QUANTILE),
        bound_violations=broken,
    )
