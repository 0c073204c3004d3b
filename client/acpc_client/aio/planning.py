"""What the asyncio client asks about a planner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acpc.contract import CemReturn, CostReduction, NumericMode
from numpy.typing import NDArray

from acpc_client.aio.base import AsyncBase
from acpc_client.aio.session import AsyncPlanSession
from acpc_client.calls import diagnostics, planning
from acpc_client.inputs import CemBudget, CheckpointRef
from acpc_client.perturbations import Perturbation
from acpc_client.results import PairedPlans, PoolCertificate


class AsyncPlanningMethods(AsyncBase):
    """Certificates for candidate pools, and for whole CEM runs."""

    async def certify_pool(
        self,
        checkpoint: str | CheckpointRef,
        history: NDArray[Any],
        candidates: NDArray[Any],
        goal: NDArray[Any],
        *,
        past_blocks: NDArray[Any] | None = None,
        perturbations: Perturbation | Sequence[Perturbation] = (),
        views: NDArray[Any] | None = None,
        draws: int = 1,
        seed: int = 0,
        anchor: int = 0,
        elite_count: int = 0,
        cost_reduction: CostReduction = CostReduction.SERVER_DEFAULT,
        endpoint_tolerance: float = 0.0,
        weights: Sequence[float] = (),
        numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> PoolCertificate:
        """See ``AcpcClient.certify_pool``."""
        call = diagnostics.certify_pool(
            checkpoint,
            history,
            candidates,
            goal,
            past_blocks=past_blocks,
            perturbations=perturbations,
            views=views,
            draws=draws,
            seed=seed,
            anchor=anchor,
            elite_count=elite_count,
            cost_reduction=cost_reduction,
            endpoint_tolerance=endpoint_tolerance,
            weights=weights,
            numeric_mode=numeric_mode,
            request_id=request_id,
        )
        return await self._run(call, timeout)

    def plan(
        self,
        checkpoint: str | CheckpointRef,
        history: NDArray[Any],
        goal: NDArray[Any],
        *,
        past_blocks: NDArray[Any] | None = None,
        perturbations: Perturbation | Sequence[Perturbation] = (),
        views: NDArray[Any] | None = None,
        draws: int = 1,
        seed: int = 0,
        anchor: int = 0,
        elite_count: int = 0,
        cost_reduction: CostReduction = CostReduction.SERVER_DEFAULT,
        endpoint_tolerance: float = 0.0,
        weights: Sequence[float] = (),
        numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
        request_id: str | None = None,
        timeout: float | None = None,
        message_timeout: float | None = None,
    ) -> AsyncPlanSession:
        """See ``AcpcClient.plan``; the session is entered with ``async with``."""
        start = planning.start(
            checkpoint,
            history,
            goal,
            past_blocks=past_blocks,
            perturbations=perturbations,
            views=views,
            draws=draws,
            seed=seed,
            anchor=anchor,
            elite_count=elite_count,
            cost_reduction=cost_reduction,
            endpoint_tolerance=endpoint_tolerance,
            weights=weights,
            numeric_mode=numeric_mode,
            request_id=request_id,
        )
        return AsyncPlanSession(self, start, timeout, message_timeout)

    async def plan_paired(
        self,
        checkpoint: str | CheckpointRef,
        history: NDArray[Any],
        goal: NDArray[Any],
        budget: CemBudget,
        *,
        past_blocks: NDArray[Any] | None = None,
        perturbations: Perturbation | Sequence[Perturbation] = (),
        views: NDArray[Any] | None = None,
        draws: int = 1,
        seed: int = 0,
        anchor: int = 0,
        sampling_seed: int = 0,
        returns: CemReturn = CemReturn.SERVER_DEFAULT,
        cost_reduction: CostReduction = CostReduction.SERVER_DEFAULT,
        numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> PairedPlans:
        """See ``AcpcClient.plan_paired``."""
        call = planning.plan_paired(
            checkpoint,
            history,
            goal,
            budget,
            past_blocks=past_blocks,
            perturbations=perturbations,
            views=views,
            draws=draws,
            seed=seed,
            anchor=anchor,
            sampling_seed=sampling_seed,
            returns=returns,
            cost_reduction=cost_reduction,
            numeric_mode=numeric_mode,
            request_id=request_id,
        )
        return await self._run(call, timeout)
