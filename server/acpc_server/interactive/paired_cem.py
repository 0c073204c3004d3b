"""A clean and a perturbed CEM run with common random numbers.

Appendix "Adaptive-CEM Selection-Regret Protocol" in the paper: both runs start from mean 0 and
standard deviation 1, share the random numbers of every iteration, and fit their proposal to their
own elites. Until their elite sets differ, the two runs evaluate the same pools; only there do
certificates say anything about the run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal

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
    clean_gaps,
    share_clean,
)
from acpc_server.interactive.costs import costs_of, pool_cost
from acpc_server.interactive.planning import GROUP_STEPS, PlanningSession
from acpc_server.interactive.tally import count_plans
from acpc_server.numerics import (
    Proposal,
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
UNCERTIFIED = SelectionCertificate(certified=False, margin=float("-inf"))


@dataclass(frozen=True)
class _Iteration:
    """One iteration of the clean run: pool, rollouts (J, H, dim), gaps and sorted elites (k,)."""

    pool: Tensor
    rollouts: Tensor
    gaps: CleanGaps
    elites: Tensor
    choice: PoolChoice | None


class _Run:
    """The state of one CEM run."""

    def __init__(self, cem: PairedCem) -> None:
        self._cem = cem
        self._proposal = cem.start
        self._best = cem.start.mean
        self.choice: PoolChoice | None = None  # in the latest iteration

    def pool(self, iteration: int) -> Tensor:
        """The candidates of this run at an iteration, (J, H, block width)."""
        return sample_pool(self._proposal, self._cem.normals(iteration))

    def advance(self, pool: Tensor, rollouts: Tensor) -> Tensor:
        """Fit the next proposal to the elites of the pool, and return them sorted, (k,)."""
        costs = self._cem.costs(rollouts, pool)
        elites = elite_indices(costs, self._cem.budget.elites)
        self._proposal = fit_proposal(pool, elites)
        self._best = pool[elites[0]]
        if self._cem.choices:
            self.choice = PoolChoice(costs.numpy(), elites.numpy())
        return elites.sort().values

    @property
    def plan(self) -> Tensor:
        """What the run returns, (H, block width)."""
        return self._proposal.mean if self._cem.returns == "mean" else self._best


class PairedCem:
    """Paired CEM runs of one session.

    Args:
        session: The planner's moment; the elite count is the budget's.
        returns: The final mean, or the best candidate of the final pool.
        choices: Whether costs and elites of every iteration are answered.

    Raises:
        InvalidArgument: The budget is out of range or over a limit; names its field.
    """

    def __init__(
        self,
        session: PlanningSession,
        budget: CemBudget,
        seed: int,
        returns: Returns,
        *,
        choices: bool = False,
    ) -> None:
        check(budget, "budget")
        session.check_work(
            f"{budget.iterations} iterations of {budget.candidates} candidates of {budget.horizon} "
            f"steps for a clean run and two pools for each of {session.view_count} views",
            budget.candidates,
            budget.iterations * budget.horizon * (1 + 2 * session.view_count),
            "budget.candidates",
        )
        self.budget = budget
        self.returns = returns
        self.choices = choices
        self.start: Proposal = initial_proposal(budget.horizon, session.card.action_block_dim)
        self._session = session
        self._seed = seed
        self._weights = horizon_weights((), budget.horizon)
        pool_cost(session, self.start.mean[None])  # before anything is computed

    def run(self, context: RequestContext) -> PairedPlans:
        """Run the clean and every perturbed branch.

        Raises:
            FailedPrecondition: A prediction is not finite.
            Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable: From the engine.
        """
        with self._session.slot(context):
            session = self._session
            clean = _Run(self)
            iterations = [
                self._clean_iteration(clean, t, context) for t in range(self.budget.iterations)
            ]
            group = max(1, GROUP_STEPS // (2 * self.budget.candidates * self.budget.horizon))
            ended: list[tuple[Tensor, list[PairedIteration]]] = []
            for views in torch.split(session.views, group):
                ended += self._perturbed_runs(views, iterations, context)
            regrets = self._regrets(clean.plan, [plan for plan, _ in ended], context)
            plans = PairedPlans(
                clean_plan=clean.plan.numpy(),
                views=tuple(
                    self._paired_plan(view, *ended[row], regrets[row])
                    for view, row in session.view_rows
                ),
                receipt=session.receipt(
                    {
                        "budget": asdict(self.budget),
                        "sampling_seed": self._seed,
                        "returns": self.returns,
                        "endpoint_tolerance": session.endpoint_tolerance,
                    }
                ),
                clean_gaps=tuple(iteration.gaps for iteration in iterations),
                clean_choices=tuple(x.choice for x in iterations if x.choice is not None),
            )
            count_plans(session, plans, context)
            return plans

    def _paired_plan(
        self, view: View, plan: Tensor, record: list[PairedIteration], regret: float
    ) -> PairedPlan:
        apart = (t for t, iteration in enumerate(record) if not iteration.same_elites)
        return PairedPlan(
            spec_index=view.spec_index,
            draw=view.draw,
            perturbed_plan=plan.numpy(),
            iterations=tuple(record),
            first_divergence=next(apart, None),
            certified=self._certified(record),
            selection_regret=regret,
        )

    def normals(self, iteration: int) -> Tensor:
        """The common random numbers of an iteration, (J, H, block width)."""
        return pool_normals(
            self._seed,
            iteration,
            candidates=self.budget.candidates,
            horizon=self.budget.horizon,
            width=self._session.card.action_block_dim,
        )

    def costs(self, rollouts: Tensor, pool: Tensor) -> Tensor:
        """Cost of every candidate of a pool, rolled out, (J, H, dim)."""
        session = self._session
        return costs_of(session, pool_cost(session, pool), rollouts, session.goal)

    def _clean_iteration(self, run: _Run, iteration: int, context: RequestContext) -> _Iteration:
        pool = run.pool(iteration)
        rollouts = self._session.rollout(self._session.clean[None], pool[None], context)[0]
        gaps = clean_gaps(self.costs(rollouts, pool), self.budget.elites)
        return _Iteration(pool, rollouts, gaps, run.advance(pool, rollouts), run.choice)

    def _perturbed_runs(
        self, views: Tensor, clean: list[_Iteration], context: RequestContext
    ) -> list[tuple[Tensor, list[PairedIteration]]]:
        """Plan and record of a few views, run in step, so that the device sees large batches."""
        runs = [_Run(self) for _ in views]
        records: list[list[PairedIteration]] = [[] for _ in views]
        apart: list[int] = []  # views whose elites have differed, and so have pools of their own
        for t, shared in enumerate(clean):
            own = [runs[row].pool(t) for row in apart]
            pools = torch.stack([shared.pool] * len(views) + own)
            rollouts = self._session.rollout(torch.cat([views, views[apart]]), pools, context)
            on_shared, on_own = rollouts[: len(views)], rollouts[len(views) :]
            on_shared = share_clean(views, self._session.clean, on_shared, shared.rollouts)
            seen = self._session, shared.rollouts, on_shared, self._weights
            certificates = certify_views(*seen, self.budget.elites, shared.pool)
            broken = broken_bounds(*seen, certificates, shared.pool)
            judged = [_iteration(*pair) for pair in zip(certificates, broken, strict=True)]
            for row, pool, rollout in zip(apart, own, on_own, strict=True):
                runs[row].advance(pool, rollout)
                records[row].append(
                    replace(
                        judged[row],
                        elite=UNCERTIFIED,
                        top1=UNCERTIFIED,
                        same_elites=False,
                        choice=runs[row].choice,
                    )
                )
            for row in sorted({*range(len(views))} - {*apart}):
                elites = runs[row].advance(shared.pool, on_shared[row])
                same = torch.equal(elites, shared.elites)
                records[row].append(replace(judged[row], same_elites=same, choice=runs[row].choice))
                if not same:
                    apart.append(row)
        return [(run.plan, record) for run, record in zip(runs, records, strict=True)]

    def _certified(self, record: list[PairedIteration]) -> bool:
        """Cor. adaptive-cem-alignment; a run that returns its best candidate needs top-1 too."""
        elites = all(iteration.elite.certified for iteration in record)
        return elites and (self.returns == "mean" or record[-1].top1.certified)

    def _regrets(
        self, clean_plan: Tensor, plans: list[Tensor], context: RequestContext
    ) -> list[float]:
        """(C_h(a~) - C_h(a))_+; equal plans are rolled out once, so their regret is exactly 0."""
        every = torch.stack([clean_plan, *plans])  # (1 + views, H, width)
        distinct, rows = torch.unique(every, dim=0, return_inverse=True)
        rollouts = self._session.rollout(self._session.clean[None], distinct[None], context)[0]
        costs = self.costs(rollouts, distinct)[rows]  # (1 + views,)
        return (costs[1:] - costs[0]).clamp(min=0).tolist()


def _iteration(certificate: ViewCertificate, broken: int) -> PairedIteration:
    """An iteration while both runs have chosen alike."""
    return PairedIteration(
        elite=certificate.elite or UNCERTIFIED,
        top1=certificate.top1,
        same_elites=True,
        acpc_one_step_q90=certificate.acpc_one_step_q90,
        acpc_q90=certificate.acpc_q90,
        displacement_q90=linear_quantile(torch.from_numpy(certificate.displacements), QUANTILE),
        bound_violations=broken,
    )
