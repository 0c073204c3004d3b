"""A clean and a perturbed CEM run with common random numbers.

Appendix "Adaptive-CEM Selection-Regret Protocol" in the paper: both runs start from mean 0 and
standard deviation 1, share the random numbers of every iteration, and fit their proposal to their
own elites. Until their elite sets differ, the two runs evaluate the same pools; only there do
certificates say anything about the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
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
    check,
)
from torch import Tensor

from acpc_server.interactive.certificates import (
    QUANTILE,
    broken_bounds,
    certify_views,
    may_change,
)
from acpc_server.interactive.moment import EncodedMoment, Moment
from acpc_server.interactive.pieces import (
    Measures,
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
    pool_cost(moment, torch.zeros(1, budget.horizon, moment.card.action_block_dim))


@dataclass
class _Run:
    """The state of one CEM run, and a perturbed one's iterations beside the clean run's."""

    proposal: CemProposal
    best: Tensor  # candidate of the last pool, (H, block width)
    choice: PoolChoice | None = None
    record: list[PairedIteration] = field(default_factory=list)

    def advance(self, pool: Tensor, costs: Tensor, k: int, *, keep: bool) -> Tensor:
        """Fit the next proposal to a pool's k elites by costs (J,); returns them sorted, (k,)."""
        elites = elite_indices(costs, k)
        self.proposal = fit_proposal(pool, elites)
        self.best = pool[elites[0]]
        if keep:
            self.choice = PoolChoice(costs.numpy(), elites.numpy())
        return elites.sort().values


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
        self._budget, self._seed = budget, seed
        self._returns, self._choices = returns, choices
        self._moment, self._encoded = moment, encoded
        self._weights = horizon_weights((), budget.horizon)
        self.leaders: list[Tensor] = []  # of the clean run's pools, (LEADERS, H, width) each

    def run(self, context: RequestContext) -> PairedPlans:
        """Run the clean and every perturbed branch.

        Raises FailedPrecondition: A prediction is not finite; Cancelled, DeadlineExceeded,
        ResourceExhausted, Unavailable: From the engine.
        """
        moment, encoded, budget = self._moment, self._encoded, self._budget
        rows = (1 + 2 * len(encoded.views)) * budget.candidates
        context.price(pool_calls(moment, rows * budget.iterations, budget.horizon))
        zero = torch.zeros(budget.horizon, moment.card.action_block_dim)
        start = CemProposal(zero, torch.ones_like(zero))
        clean, *runs = (_Run(start, zero) for _ in range(1 + len(encoded.views)))
        size = group_size(moment, 2 * budget.candidates, budget.horizon)
        groups = [
            _Group(encoded.views[part], encoded.goals[part], runs[part])
            for part in (slice(start, start + size) for start in range(0, len(runs), size))
        ]
        iterations = [self._iterate(t, clean, groups, context) for t in range(budget.iterations)]
        mean = self._returns == "mean"
        clean_plan, *plans = (run.proposal.mean if mean else run.best for run in (clean, *runs))
        regrets = self._regrets(torch.stack([clean_plan, *plans]), context)
        views = tuple(
            PairedPlan(
                spec_index=view.spec_index,
                draw=view.draw,
                perturbed_plan=plans[row].numpy(),
                iterations=tuple(record := runs[row].record),
                first_divergence=next((t for t, x in enumerate(record) if not x.same_elites), None),
                # Cor. adaptive-cem-alignment; to return the best candidate needs top-1 too.
                certified=all(x.elite.certified for x in record)
                and (mean or record[-1].top1.certified),
                selection_regret=regrets[row],
            )
            for view, row in encoded.view_rows
        )
        answer = PairedPlans(
            clean_plan=clean_plan.numpy(),
            views=views,
            receipt=moment.receipt(
                {
                    "budget": asdict(budget),
                    "sampling_seed": self._seed,
                    "returns": self._returns,
                    "endpoint_tolerance": moment.request.endpoint_tolerance,
                },
                program=context.program,
            ),
            clean_gaps=tuple(gaps for gaps, _ in iterations),
            clean_choices=tuple(choice for _, choice in iterations if choice is not None),
            plan_may_change=may_change(moment.asked_views, [one.certified for one in views]),
        )
        moment.tally.count_plans(answer, context)
        return answer

    def _iterate(
        self, t: int, clean: _Run, groups: Sequence[_Group], context: RequestContext
    ) -> tuple[CleanGaps, PoolChoice | None]:
        """Do one iteration of every run, in step, so that the device sees large batches."""
        moment, encoded, budget = self._moment, self._encoded, self._budget
        normals = pool_normals(  # common to all runs
            self._seed,
            t,
            candidates=budget.candidates,
            horizon=budget.horizon,
            width=moment.card.action_block_dim,
        )
        pool = sample_pool(clean.proposal, normals)
        pools = [  # of a group's views that of the clean run, then those of the runs apart
            torch.stack(
                [pool] * len(group.runs)
                + [sample_pool(group.runs[row].proposal, normals) for row in group.apart]
            )
            for group in groups
        ]
        costs: list[Tensor] = []
        seen: list[list[_Costs]] = [[] for _ in groups]
        for piece in pieces_of(moment, max(map(len, pools)), *pool.shape[:2]):
            rollouts = encoded.rollout(encoded.clean[None], pool[None, piece], context)[0]
            costs.append(self._costs(rollouts, pool[piece], encoded.goal))
            for group, own, found in zip(groups, pools, seen, strict=True):
                found.append(self._look(group, own[:, piece], rollouts, costs[-1], context))
        choices = choices_of(pool)
        whole = join_costs(costs, choices)
        elites = clean.advance(pool, whole, budget.elites, keep=self._choices)
        order = whole.argsort(stable=True)
        if choices is not None:
            order = order[choices[order] == order]  # the first of the copies of each
        self.leaders.append(pool[order[torch.arange(LEADERS).clamp(max=len(order) - 1)]])
        for group, own, found in zip(groups, pools, seen, strict=True):
            self._advance(group, own[len(group.runs) - 1 :], elites, found)
        return clean_gaps(whole, budget.elites, choices), clean.choice

    def _look(
        self, group: _Group, pools: Tensor, clean: Tensor, costs: Tensor, context: RequestContext
    ) -> _Costs:
        """Measure candidates of a group's pools, (n, J, H, width), and clean rollouts and costs."""
        encoded, count = self._encoded, len(group.runs)
        histories = torch.cat([group.views, group.views[group.apart]])
        rollouts = encoded.rollout(histories, pools, context)
        shared = share_clean(group.views, encoded.clean, rollouts[:count], clean)
        cost = pool_cost(self._moment, pools[0])
        measures = measure(encoded, cost, clean, shared, group.goals)
        broken = broken_bounds(encoded.goal, clean, shared, self._weights, measures, costs)
        alone = zip(rollouts[count:], pools[count:], group.goals[group.apart], strict=True)
        return _Costs(measures, broken, [self._costs(*one) for one in alone])

    def _advance(
        self, group: _Group, pools: Tensor, elites: Tensor, found: Sequence[_Costs]
    ) -> None:
        """End an iteration of a group's runs.

        ``pools`` are the clean run's, with its ``elites``, and those of the runs apart.
        """
        pool, *own = pools
        measures = join_measures([one.measures for one in found], choices_of(pool))
        k, keep = self._budget.elites, self._choices
        certificates = certify_views(self._moment, measures, self._weights, k, pool)
        broken = [sum(counts) for counts in zip(*(one.broken for one in found), strict=True)]
        places = {row: place for place, row in enumerate(group.apart)}
        for row, (run, certificate) in enumerate(zip(group.runs, certificates, strict=True)):
            displacements = torch.from_numpy(certificate.displacements)
            place = places.get(row)
            if place is None:
                costs = torch.from_numpy(certificate.perturbed_costs)
                same = torch.equal(run.advance(pool, costs, k, keep=keep), elites)
                if not same:
                    group.apart.append(row)
            else:
                costs = join_costs([one.own[place] for one in found], choices_of(own[place]))
                run.advance(own[place], costs, k, keep=keep)
                same = False
            alike = place is None  # until both have chosen differently, certificates say something
            run.record.append(
                PairedIteration(
                    elite=(alike and certificate.elite) or UNCERTIFIED,
                    top1=certificate.top1 if alike else UNCERTIFIED,
                    same_elites=same,
                    acpc_one_step_q90=certificate.acpc_one_step_q90,
                    acpc_q90=certificate.acpc_q90,
                    displacement_q90=linear_quantile(displacements, QUANTILE),
                    bound_violations=broken[row],
                    choice=run.choice,
                )
            )

    def _costs(self, rollouts: Tensor, pool: Tensor, goal: Tensor) -> Tensor:
        """Compute the cost of every candidate of a pool, rolled out, (J, H, dim)."""
        return costs_of(self._moment, pool_cost(self._moment, pool), rollouts, goal)

    def _regrets(self, plans: Tensor, context: RequestContext) -> list[float]:
        """Compute (C_h(a~) - C_h(a))_+ of plans (1 + views, H, width), the clean one first.

        Equal plans are rolled out once, so theirs is exactly 0.
        """
        distinct, rows = torch.unique(plans, dim=0, return_inverse=True)
        encoded, found = self._encoded, []
        for pool in (distinct[piece] for piece in pieces_of(self._moment, 1, *distinct.shape[:2])):
            rollouts = encoded.rollout(encoded.clean[None], pool[None], context)[0]
            found.append(self._costs(rollouts, pool, encoded.goal))
        costs = torch.cat(found)[rows]  # (1 + views,)
        return (costs[1:] - costs[0]).clamp(min=0).tolist()
