"""A planning session: history and goal once, then pool after pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, Unpack

from acpc.contract import Array, CheckpointRef, PoolCertificate, Receipt, SampledPool
from acpc.v1 import diagnostic_service_pb2 as pb

from acpc_client.aio.streams import AsyncPlanStream
from acpc_client.aio.transport import AsyncTransport
from acpc_client.aio.wire import AsyncLock
from acpc_client.calls import CertifyOptions, diagnostics
from acpc_client.errors import AcpcError
from acpc_client.results import read_answer
from acpc_client.transport import ReadAnswer, SessionBase

T = TypeVar("T")


class AsyncPlanSession(SessionBase):
    """Certificates for the pools of one planner run; a context manager, entered once.

    Any error of the server ends the session: its answers would no longer match the pools. An
    ArgumentError does not, because nothing was sent.

    Pools that are asked for at the same time are answered one at a time, in the order of their
    turns. After ``close`` a pool under way fails with Cancelled.
    """

    _transport: AsyncTransport
    _stream: AsyncPlanStream

    async def __aenter__(self) -> AsyncPlanSession:
        """Sends the start; tried again as any call is, until the server has taken it.

        Raises:
            AcpcError: What the server rejected.
            SessionClosed: The session was entered before.
        """
        return await self.enter()

    async def enter(self, *, timeout: float | None = None) -> AsyncPlanSession:
        """Enters the session within ``timeout`` seconds, the session's where None.

        The session itself may last as long as its own timeout from then on. Raises as ``with``
        does; close it with ``close``.
        """
        self._check(fresh=True)
        attempts = self._transport.attempts(diagnostics.PLAN, timeout or self._timeout)
        lasting = self._timeout if timeout else 0.0
        self._turn = AsyncLock()
        while True:
            options = self._options(attempts, lasting)
            self._stream = AsyncPlanStream(self._transport, self.request_id, options)
            try:
                limit = self._opening_limit(attempts)
                self._begun(await self._stream.exchange(self._first, limit), self._first)
                self._why_closed = ""
                return self
            except BaseException as failure:
                self._hang_up(str(failure))
                delay = attempts.after(failure) if isinstance(failure, AcpcError) else None
                if delay is None:
                    raise
            await self._transport.rest(delay)

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.close()
        else:
            self._hang_up("it was left by an exception")

    async def restart(
        self,
        checkpoint: str | CheckpointRef,
        history: Array,
        goal: Array,
        *,
        timeout: float | None = None,
        **options: Unpack[CertifyOptions],
    ) -> Receipt:
        """Begins the planner's next moment on the same stream; later pools are of it.

        Takes what ``client.plan`` does, and keeps nothing of the moment before but the request id.

        Args:
            checkpoint: As of ``client.plan``.
            history: As of ``client.plan``.
            goal: As of ``client.plan``.
            timeout: Seconds for the answer; None: the session's ``message_timeout``.
            **options: See ``CertifyOptions``; ``perturbations`` or ``views`` must be given.

        Returns:
            What the session computes with from now on.

        Raises:
            ArgumentError: An argument cannot be sent as it is; the session goes on.
            SessionClosed: The session is not open.
            AcpcError: What the server rejected, or could not do; the session has ended.
        """
        options.setdefault("request_id", self.request_id)
        start = pb.PlanRequest(start=diagnostics.start(checkpoint, history, goal, **options))
        return await self._answered(lambda: start, self._begun, timeout)

    async def certify(
        self,
        candidates: Array,
        *,
        offsets: Array | None = None,
        infeasible: Array | None = None,
        timeout: float | None = None,
    ) -> PoolCertificate:
        """Can the visual change alter the planner's choice among these candidates?

        Args:
            candidates: Action sequences, float32 (candidates, H, block width).
            offsets: Added to the cost of each, float32 (candidates,).
            infeasible: Those that break a constraint on their actions, bool (candidates,).
            timeout: Seconds for this answer; None: the session's ``message_timeout``.

        Raises:
            ArgumentError: The candidates cannot be sent as they are; the session goes on.
            SessionClosed: The session is not open.
            AcpcError: What the server rejected, or could not do; the session has ended.
        """
        answer = await self._ask(diagnostics.pool(candidates, offsets, infeasible), timeout)
        return read_answer(PoolCertificate, answer.certificate)

    async def certify_proposal(
        self,
        mean: Array,
        std: Array,
        *,
        candidates: int = 64,
        seed: int,
        timeout: float | None = None,
    ) -> SampledPool:
        """``certify`` for a pool that the server samples, which saves sending it.

        Args:
            mean: Mean of the proposal, float32 (H, block width); it is candidate 0 itself.
            std: Standard deviations, of the same shape.
            candidates: Pool size.
            seed: Seed of the samples; give every iteration another.
            timeout: Seconds for this answer; None: the session's ``message_timeout``.

        Raises:
            ArgumentError: An argument cannot be sent as it is; the session goes on.
            SessionClosed: The session is not open.
            AcpcError: What the server rejected, or could not do; the session has ended.
        """
        answer = await self._ask(diagnostics.proposal(mean, std, candidates, seed), timeout)
        return read_answer(SampledPool, answer)

    async def close(self) -> None:
        """Says goodbye to the server; pools are rejected from now on."""
        if self._why_closed:
            return
        self._why_closed = "it was closed"
        await self._stream.close(self._turn)

    async def _ask(self, pool: pb.PlanPool, timeout: float | None) -> pb.PlanCertificate:
        return await self._answered(lambda: self._numbered(pool), self._certified, timeout)

    async def _answered(
        self, make: Callable[[], pb.PlanRequest], read: ReadAnswer[T], timeout: float | None
    ) -> T:
        limit = self._limit(timeout)
        self._check(fresh=False)
        async with self._turn:
            self._check(fresh=False)
            request = make()
            try:
                return read(await self._stream.exchange(request, limit), request)
            except BaseException as failure:
                # The next answer would be this message's.
                self._hang_up(self._reason(failure))
                raise

    def _hang_up(self, why: str) -> None:
        self._why_closed = self._why_closed or why
        self._stream.cancel()
