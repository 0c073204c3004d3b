"""A planning session: history and goal once, then pool after pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from acpc.contract import Array, CheckpointRef, PoolCertificate, Receipt, SampledPool
from acpc.v1.diagnostic_service_pb2 import PlanRequest, PlanStart

from acpc_client.aio.transport import AsyncTransport
from acpc_client.calls import methods, requests
from acpc_client.calls.options import CertifyOptions, check_timeout
from acpc_client.errors import AcpcError, MalformedAnswer, SessionClosed, Unavailable, extended
from acpc_client.results.answers import read_answer
from acpc_client.retries import hinted
from acpc_client.transport.aio import AsyncConversation, AsyncLock

T = TypeVar("T")
# A stream has no request id of its own; the header gives its errors and log lines the session's.
REQUEST_ID_HEADER = "x-request-id"
MESSAGE_TIMEOUT_S = 30.0


class AsyncPlanSession:
    """Certificates for the pools of one planner run; a context manager, entered once.

    Any error of the server ends the session: its answers would no longer match the pools. An
    ArgumentError does not, because nothing was sent. One that is not open raises SessionClosed.

    Pools that are asked for at the same time are answered one at a time, in the order of their
    turns. After ``close`` a pool under way fails with Cancelled.

    Attributes:
        request_id: Names the session in the server's logs.
        elite_count: Size k of the elite set; zero: no elite certificates.
        kept_elites: Elites that must stay the best of all, as iCEM's; zero: none.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        start: PlanStart,
        timeout: float | None,
        message_timeout: float | None,
    ) -> None:
        self.request_id = start.request_id
        self.elite_count, self.kept_elites = start.elite_count, start.kept_elites
        self._transport = transport
        self._first = PlanRequest(start=start)
        self._timeout = check_timeout(timeout) or methods.PLAN.timeout
        self._message_timeout = (
            check_timeout(message_timeout) or transport.timeout or MESSAGE_TIMEOUT_S
        )
        self._receipt: Receipt | None = None
        self._iteration = 0
        self._why_closed = "it was not entered; use: with client.plan(...) as session"

    @property
    def receipt(self) -> Receipt:
        """What the session computes with; available once it is entered.

        Raises SessionClosed: The session was not entered.
        """
        if self._receipt is None:
            raise self._closed()
        return self._receipt

    async def __aenter__(self) -> AsyncPlanSession:
        """Sends the start; tried again as any call is, until the server has taken it.

        Raises:
            SessionClosed: The session was entered before.
        """
        return await self.enter()

    async def enter(self, *, timeout: float | None = None) -> AsyncPlanSession:
        """Enters the session within ``timeout`` seconds, the session's where None.

        The session itself may last as long as its own timeout from then on. Raises as ``with``
        does; close it with ``close``.
        """
        if self._receipt is not None:
            raise SessionClosed("a planning session can be entered once; call client.plan again")
        attempts = self._transport.attempts(methods.PLAN, timeout or self._timeout)
        lasting = self._timeout if timeout else 0.0
        # An id that fits no header travels in the first message alone.
        fits = self.request_id.isascii() and self.request_id.isprintable()
        header = ((REQUEST_ID_HEADER, self.request_id),) if fits else ()
        self._turn = AsyncLock()
        while True:
            options: dict[str, Any] = {
                "timeout": (attempts.remaining() or 0.0) + lasting,
                "metadata": header,
            }
            self._stream = AsyncConversation(
                self._transport, methods.PLAN, self.request_id, options
            )
            limit = min(self._message_timeout, attempts.remaining() or self._message_timeout)
            try:
                self._begun(await self._stream.exchange(self._first, limit), self._first)
                self._why_closed = ""
                return self
            except BaseException as failure:
                self._hang_up(str(failure))
                if not isinstance(failure, AcpcError):
                    raise
                error = failure
            await self._transport.rest(attempts.failed(error))

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

        Takes what ``client.plan`` does, ``timeout`` being that of the answer, and keeps nothing of
        the moment before but the request id. Returns what the session computes with from now on.
        """
        options.setdefault("request_id", self.request_id)
        start = methods.PLAN.message(checkpoint, options, history=history, goal=goal)
        return await self._answered(PlanRequest(start=start), self._begun, timeout)

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
        """
        asked = PlanRequest(pool=requests.plan_pool(candidates, offsets, infeasible))
        answer = await self._answered(asked, self._certified, timeout)
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
        """
        asked = PlanRequest(pool=requests.plan_proposal(mean, std, candidates, seed))
        answer = await self._answered(asked, self._certified, timeout)
        return read_answer(SampledPool, answer)

    async def close(self) -> None:
        """Says goodbye to the server; pools are rejected from now on."""
        if self._why_closed:
            return
        self._why_closed = "it was closed"
        await self._stream.close(self._turn)

    async def _answered(
        self,
        request: PlanRequest,
        read: Callable[[Any, PlanRequest], T],
        timeout: float | None,
    ) -> T:
        limit = check_timeout(timeout) or self._message_timeout
        self._check_open()
        async with self._turn:
            self._check_open()
            if request.HasField("pool"):
                request.pool.iteration = self._iteration
                self._iteration += 1
            try:
                return read(await self._stream.exchange(request, limit), request)
            except BaseException as failure:
                # The next answer would be this message's.
                self._hang_up(self._reason(failure))
                raise

    def _begun(self, answer: Any, request: PlanRequest) -> Receipt:  # noqa: ANN401 - a message
        """Keeps and returns the receipt in the answer to a start."""
        if answer is None or answer.WhichOneof("message") != "started":
            raise MalformedAnswer("Plan: the stream did not begin with its receipt")
        self._receipt = read_answer(Receipt, answer.started.receipt)
        self.elite_count = request.start.elite_count
        self.kept_elites = request.start.kept_elites
        self._transport.contact.answered()
        return self._receipt

    @staticmethod
    def _certified(answer: Any, request: PlanRequest) -> Any:  # noqa: ANN401 - messages
        """The answer to a pool."""
        wanted = request.pool.iteration
        if answer is None or answer.WhichOneof("message") != "certificate":
            raise MalformedAnswer(f"Plan: no certificate for iteration {wanted}")
        if answer.certificate.iteration != wanted:
            found = answer.certificate.iteration
            raise MalformedAnswer(f"Plan: a certificate for iteration {found}, wanted {wanted}")
        return answer.certificate

    def _check_open(self) -> None:
        if self._why_closed:
            raise self._closed()

    def _closed(self) -> SessionClosed:
        return SessionClosed(
            f"the planning session is not open: {self._why_closed}", request_id=self.request_id
        )

    def _reason(self, failure: BaseException) -> str:
        """Words why the session ended; an error of a server that has gone also gets a remedy."""
        if isinstance(failure, Unavailable):
            extended(failure, "a planning session stays with its server: open another")
            hinted(failure)
        return str(failure) or type(failure).__name__

    def _hang_up(self, why: str) -> None:
        self._why_closed = self._why_closed or why
        self._stream.cancel()
