"""What the client asks about a planner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from acpc.contract import Array

from acpc_client import aio, calls

if TYPE_CHECKING:
    from acpc.contract import CemBudget, CheckpointRef, PairedPlans, PoolCertificate

    from acpc_client.aio.transport import AsyncTransport
    from acpc_client.calls import CertifyOptions, PairedOptions, PoolOptions


class AsyncPlanningMethods:
    """Certificates for candidate pools, and for whole CEM runs."""

    _transport: AsyncTransport

    async def certify_pool(
        self,
        checkpoint: str | CheckpointRef,
        history: Array,
        candidates: Array,
        goal: Array,
        *,
        timeout: float | None = None,
        **options: Unpack[PoolOptions],
    ) -> PoolCertificate:
        """Can this visual change alter the planner's choice among these candidates?

        Args:
            checkpoint: Name below the server's root, or a ref.
            history: Clean frames, uint8 (h, height, width, 3).
            candidates: Action sequences, float32 (candidates, H, block width).
            goal: uint8 (height, width, 3), or float32 (latent width,) in the projected space.
            timeout: Seconds for the whole call; None: 30.
            **options: See ``PoolOptions``; ``perturbations`` or ``views`` must be given.
        """
        rpc, scene = calls.methods.CERTIFY_POOL, {"history": history, "goal": goal}
        request = rpc.message(checkpoint, options, candidates=candidates, **scene)
        return await self._transport.run(rpc, request, timeout)

    def plan(
        self,
        checkpoint: str | CheckpointRef,
        history: Array,
        goal: Array,
        *,
        timeout: float | None = None,
        message_timeout: float | None = None,
        **options: Unpack[CertifyOptions],
    ) -> aio.AsyncPlanSession:
        """A session that certifies one pool after another, as a planner makes them.

        History, goal and views travel once, when the session is entered, and are encoded once.
        Without an answer to that the call is tried again; a session that breaks later is not.

        Args:
            checkpoint: Name below the server's root, or a ref.
            history: Clean frames, uint8 (h, height, width, 3).
            goal: uint8 (height, width, 3), or float32 (latent width,) in the projected space.
            timeout: Seconds for the whole session; None: 600.
            message_timeout: Seconds for each answer; None: the client's timeout, or 30.
            **options: See ``CertifyOptions``; ``perturbations`` or ``views`` must be given.

        Example:
            >>> async with client.plan("lewm-pusht", frame, goal, perturbations=noise) as session:
            ...     for _ in range(iterations):
            ...         pool = await session.certify_proposal(mean, std, seed=next(seeds))
            ...         if not pool.certificate.views[0].top1.certified:
            ...             break
        """
        start = calls.methods.PLAN.message(checkpoint, options, history=history, goal=goal)
        return aio.AsyncPlanSession(self._transport, start, timeout, message_timeout)

    async def plan_paired(
        self,
        checkpoint: str | CheckpointRef,
        history: Array,
        goal: Array,
        budget: CemBudget,
        *,
        timeout: float | None = None,
        **options: Unpack[PairedOptions],
    ) -> PairedPlans:
        """Would the planner have made the same plan from another view of its history?

        The server runs CEM from the clean history and from every view, with common random
        numbers, and certifies every iteration of the clean run.

        Args:
            checkpoint: Name below the server's root, or a ref.
            history: Clean frames, uint8 (h, height, width, 3).
            goal: uint8 (height, width, 3), or float32 (latent width,) in the projected space.
            budget: Size of both runs.
            timeout: Seconds for the whole call; None: 300.
            **options: See ``PairedOptions``; ``perturbations`` or ``views`` must be given.
        """
        rpc, scene = calls.methods.PLAN_PAIRED, {"history": history, "goal": goal}
        request = rpc.message(checkpoint, options, budget=budget, **scene)
        return await self._transport.run(rpc, request, timeout)
