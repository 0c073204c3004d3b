"""A planning session: history and goal once, then pool after pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from acpc.contract import Array, PoolCertificate, Receipt, SampledPool
from acpc.v1 import diagnostic_service_pb2 as pb

from acpc_client.aio.streams import AsyncPlanStream
from acpc_client.aio.transport import AsyncTransport
from acpc_client.aio.wire import AsyncLock
from acpc_client.calls import diagnostics
from acpc_client.errors import AcpcError
from acpc_client.results import read_answer
from acpc_client.retries import Attempts
from acpc_client.transport import EPISODE_S, ReadAnswer, SessionBase

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
        self._check(fresh=True)
        await self._open(self._transport.attempts(diagnostics.PLAN, self._timeout))
        return self

    async def enter_after(
        self, before: AsyncPlanSession | None, *, timeout: float | None = None
    ) -> AsyncPlanSession:
        """Enters this session for an episode; returns ``before``, moved here, where it can be.

        It can be where only frames, past blocks, goal and views of the caller's differ; answers
        keep its request id. Otherwise, and where its stream has broken, it is closed and a stream
        opened for this one. The stream may last an hour: ``timeout``, the session's where none is
        given here, covers this call alone, and each later message has its own.

        Raises:
            AcpcError: As of entering.
        """
        self._check(fresh=True)
        attempts = self._transport.attempts(diagnostics.PLAN, timeout or self._timeout)
        if before is not None:
            try:
                if await before._moved_to(self, self._opening_limit(attempts)):
                    return before
            except AcpcError as error:
                await self._transport.rest(self._unmoved(error, attempts))
            await before.close()
        await self._open(attempts, EPISODE_S)
        return self

    async def _moved_to(self, wanted: AsyncPlanSession, limit: float) -> bool:
        """Whether this session can be, and is now, where another begins."""
        request = self._frame_to(wanted)
        if request is None:
            return False
        await self._answered(lambda: request, self._moved, limit)
        self._adopt(wanted)
        return True

    async def _open(self, attempts: Attempts, lasting: float = 0.0) -> None:
        """Open the stream, which may last longer than the call that opens it."""
        self._turn = AsyncLock()
        while True:
            options = self._options(attempts, lasting)
            self._stream = AsyncPlanStream(self._transport, self.request_id, options)
            try:
                limit = self._opening_limit(attempts)
                self._entered(await self._stream.exchange(self._first, limit))
                return
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

    async def move(
        self,
        history: Array,
        *,
        keep: int = 0,
        past_blocks: Array | None = None,
        goal: Array | None = None,
        goal_proprio: Array | None = None,
        proprio: Array | None = None,
        views: Array | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Go on at the planner's next moment; later pools are answered as in a new session there.

        All else stays as the session was opened with, the seed and number of draws too. Kept
        frames and a goal that stays are neither sent nor encoded again.

        Args:
            history: Frames that follow the kept ones, uint8 (n, height, width, 3).
            keep: How many of the session's latest frames stay, ahead of these.
            past_blocks: Blocks that leave the earlier frames, float32 (keep + n - 1, block width).
            goal: As of ``client.plan``; None: the one before.
            goal_proprio: That of a goal frame which is given here.
            proprio: As of ``client.plan``, of all frames of the new history.
            views: The new history's, where the session has views of the caller's.
            timeout: Seconds for the answer; None: the session's ``message_timeout``.

        Returns:
            What the session computes with from now on.

        Raises:
            ArgumentError: An argument cannot be sent as it is; the session goes on.
            SessionClosed: The session is not open.
            AcpcError: What the server rejected, or could not do; the session has ended.
        """
        request = diagnostics.frame(
            history,
            keep=keep,
            past_blocks=past_blocks,
            goal=goal,
            explicit_views=views,
            proprio=proprio,
            goal_proprio=goal_proprio,
        )
        self._ends = 0.0  # for ``enter_after``: its start no longer says where it is
        return await self._answered(lambda: request, self._moved, timeout)

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
