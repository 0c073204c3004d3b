"""What the asyncio client asks about a planner."""

from __future__ import annotations

from typing import Any, Unpack

from acpc.contract import CemBudget, CheckpointRef, PairedPlans, PoolCertificate
from numpy.typing import NDArray

from acpc_client.aio.session import AsyncPlanSession
from acpc_client.aio.transport import AsyncTransport
from acpc_client.calls import CertifyOptions, PairedOptions, PoolOptions, diagnostics, planning


class AsyncPlanningMethods:
    """Certificates for candidate pools, and for whole CEM runs."""

    _transport: AsyncTransport

    async def certify_pool(
        self,
        checkpoint: str | CheckpointRef,
        history: NDArray[Any],
        candidates: NDArray[Any],
        goal: NDArray[Any],
        *,
        timeout: float | None = None,
        **options: Unpack[PoolOptions],
    ) -> PoolCertificate:
        """See ``AcpcClient.certify_pool``."""
        call = diagnostics.certify_pool(checkpoint, history, candidates, goal, **options)
        return await self._transport.run(call, timeout)

    def plan(
        self,
        checkpoint: str | CheckpointRef,
        history: NDArray[Any],
        goal: NDArray[Any],
        *,
        timeout: float | None = None,
        message_timeout: float | None = None,
        **options: Unpack[CertifyOptions],
    ) -> AsyncPlanSession:
        """See ``AcpcClient.plan``; the session is entered with ``async with``."""
        start = planning.start(checkpoint, history, goal, **options)
        return AsyncPlanSession(self._transport, start, timeout, message_timeout)

    async def plan_paired(
        self,
        checkpoint: str | CheckpointRef,
        history: NDArray[Any],
        goal: NDArray[Any],
        budget: CemBudget,
        *,
        timeout: float | None = None,
        **options: Unpack[PairedOptions],
    ) -> PairedPlans:
        """See ``AcpcClient.plan_paired``."""
        call = planning.plan_paired(checkpoint, history, goal, budget, **options)
        return await self._transport.run(call, timeout)
