"""A planning session of the asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import grpc
import grpc.aio
from acpc.contract import PoolCertificate, Receipt, SampledPool
from acpc.v1 import diagnostic_service_pb2 as pb
from numpy.typing import NDArray

from acpc_client.calls import planning
from acpc_client.errors import AcpcError, DeadlineExceeded
from acpc_client.results import read_answer
from acpc_client.retries import Attempts
from acpc_client.transport import EPISODE_S, GOODBYE_S, Ending, ReadAnswer, SessionBase

T = TypeVar("T")


class AsyncPlanSession(SessionBase):
    """See ``PlanSession``; tasks of one event loop take turns, and a cancelled one ends it."""

    _stream: Any = None
    _ending: Ending

    async def __aenter__(self) -> AsyncPlanSession:
        """See ``PlanSession.__enter__``."""
        self._check(fresh=True)
        await self._open(self._transport.attempts(planning.PLAN, self._timeout))
        return self

    async def enter_after(self, before: AsyncPlanSession | None) -> AsyncPlanSession:
        """See ``PlanSession.enter_after``."""
        self._check(fresh=True)
        attempts = self._transport.attempts(planning.PLAN, self._timeout)
        if before is not None:
            try:
                if await before._moved_to(self, self._opening_limit(attempts)):
                    return before
            except AcpcError as error:
                await asyncio.sleep(self._unmoved(error, attempts))
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
        self._turn = asyncio.Lock()
        while True:
            options = self._options(attempts, lasting)
            self._stream = self._transport.rpc(planning.PLAN)(**options)
            self._ending = Ending(self._stream)
            try:
                limit = self._opening_limit(attempts)
                self._entered(await self._exchange(self._first, limit))
                return
            except AcpcError as error:
                self._hang_up(error.message)
                delay = attempts.after(error)
                if delay is None:
                    raise
            await asyncio.sleep(delay)

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.close()
        else:
            self._hang_up("it was left by an exception")

    async def move(
        self,
        history: NDArray[Any],
        *,
        keep: int = 0,
        past_blocks: NDArray[Any] | None = None,
        goal: NDArray[Any] | None = None,
        goal_proprio: NDArray[Any] | None = None,
        proprio: NDArray[Any] | None = None,
        views: NDArray[Any] | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """See ``PlanSession.move``."""
        request = planning.frame(
            history,
            keep=keep,
            past_blocks=past_blocks,
            goal=goal,
            views=views,
            proprio=proprio,
            goal_proprio=goal_proprio,
        )
        self._ends = 0.0  # for ``enter_after``: its start no longer says where it is
        return await self._answered(lambda: request, self._moved, timeout)

    async def certify(
        self,
        candidates: NDArray[Any],
        *,
        offsets: NDArray[Any] | None = None,
        infeasible: NDArray[Any] | None = None,
        timeout: float | None = None,
    ) -> PoolCertificate:
        """See ``PlanSession.certify``."""
        answer = await self._ask(planning.pool(candidates, offsets, infeasible), timeout)
        return read_answer(PoolCertificate, answer.certificate)

    async def certify_proposal(
        self,
        mean: NDArray[Any],
        std: NDArray[Any],
        *,
        candidates: int = 64,
        seed: int,
        timeout: float | None = None,
    ) -> SampledPool:
        """See ``PlanSession.certify_proposal``."""
        answer = await self._ask(planning.proposal(mean, std, candidates, seed), timeout)
        return read_answer(SampledPool, answer)

    async def close(self) -> None:
        """Says goodbye to the server; pools are rejected from now on."""
        if self._why_closed:
            return
        if self._turn.locked():
            self._hang_up("it was closed")
            return
        self._why_closed = "it was closed"
        # Every answer was read before the goodbye, so nothing is lost with an error here.
        with suppress(grpc.RpcError, asyncio.InvalidStateError, TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await self._stream.done_writing()
                await self._stream.read()
        self._stream.cancel()

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
                return read(await self._exchange(request, limit), request)
            except BaseException as failure:
                # The next answer would be this message's.
                self._hang_up(self._told(failure))
                raise

    async def _exchange(self, request: pb.PlanRequest, limit: float) -> pb.PlanResponse | None:
        """Sends one message and waits for its answer; None: the server has ended the stream."""
        try:
            async with asyncio.timeout(limit):
                if not self._stream.done():  # else there is only a status left to read
                    await self._stream.write(request)
                answer = await self._stream.read()
        except TimeoutError:
            overdue = self._overdue(limit)
            raise DeadlineExceeded(overdue, reason="", request_id=self.request_id) from None
        except grpc.RpcError as raised:
            told = await self._ending.behind(raised)
            raise self._transport.error(told, self.request_id) from None
        return None if answer is grpc.aio.EOF else answer

    def _hang_up(self, why: str) -> None:
        self._why_closed = self._why_closed or why
        self._stream.cancel()
