"""What a planning session is on either side of I/O: its messages, its limits, its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from acpc.contract import Receipt
from acpc.v1 import diagnostic_service_pb2 as pb

from acpc_client.calls import diagnostics
from acpc_client.errors import (
    SessionClosed,
    Unavailable,
    extended,
)
from acpc_client.results import read_answer
from acpc_client.retries import Attempts
from acpc_client.transport.base import Transport, check_timeout

T = TypeVar("T")
# Reads the answer to a message of a stream; None: the stream has ended.
ReadAnswer: TypeAlias = Callable[[pb.PlanResponse | None, pb.PlanRequest], T]
# A stream has no request id of its own; the header gives its errors and log lines the session's.
REQUEST_ID_HEADER = "x-request-id"
# How long a session waits for the server's goodbye before it hangs up.
GOODBYE_S = 1.0


class SessionBase:
    """State of a session.

    Attributes:
        request_id: Names the session in the server's logs.
        elite_count: Size k of the elite set; zero: no elite certificates.
        kept_elites: Elites that must stay the best of all, as iCEM's; zero: none.
    """

    def __init__(
        self,
        transport: Transport,
        start: pb.PlanStart,
        timeout: float | None,
        message_timeout: float | None,
    ) -> None:
        self.request_id = start.request_id
        self.elite_count, self.kept_elites = start.elite_count, start.kept_elites
        self._transport = transport
        self._first = pb.PlanRequest(start=start)
        self._timeout = check_timeout(timeout) or diagnostics.PLAN.timeout
        self._message_timeout = (
            check_timeout(message_timeout) or transport.timeout or diagnostics.MESSAGE_TIMEOUT_S
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

    def _closed(self) -> SessionClosed:
        return SessionClosed(
            f"the planning session is not open: {self._why_closed}", request_id=self.request_id
        )

    def _begun(self, answer: pb.PlanResponse | None, request: pb.PlanRequest) -> Receipt:
        """Keeps and returns the receipt in the answer to a start."""
        self._receipt = read_answer(Receipt, diagnostics.started(answer).receipt)
        self.elite_count = request.start.elite_count
        self.kept_elites = request.start.kept_elites
        self._transport.contact.answered()
        return self._receipt

    @staticmethod
    def _certified(answer: pb.PlanResponse | None, request: pb.PlanRequest) -> pb.PlanCertificate:
        """The answer to a pool."""
        return diagnostics.certificate(answer, request.pool.iteration)

    def _options(self, attempts: Attempts, lasting: float) -> dict[str, object]:
        """Options of the stream; an id that fits no header travels in the first message only."""
        timeout = (attempts.remaining() or 0.0) + lasting
        fits = self.request_id.isascii() and self.request_id.isprintable()
        header = ((REQUEST_ID_HEADER, self.request_id),) if fits else ()
        return {"timeout": timeout, "metadata": header}

    def _opening_limit(self, attempts: Attempts) -> float:
        """Seconds for the answer to the start."""
        return min(self._message_timeout, attempts.remaining() or self._message_timeout)

    def _check(self, *, fresh: bool) -> None:
        """Reject a second entry, and pools for a session that is not open.

        Raises SessionClosed: The session is in another state.
        """
        if fresh and self._receipt is not None:
            raise SessionClosed("a planning session can be entered once; call client.plan again")
        if not fresh and self._why_closed:
            raise self._closed()

    def _reason(self, failure: BaseException) -> str:
        """Words why the session ended; an error of a server that has gone also gets a remedy."""
        if isinstance(failure, Unavailable):
            extended(failure, "a planning session stays with its server: open another")
            self._transport.policy.hinted(failure)
        return str(failure) or type(failure).__name__

    def _numbered(self, pool: pb.PlanPool) -> pb.PlanRequest:
        """The pool with the next iteration's number."""
        pool.iteration = self._iteration
        self._iteration += 1
        return pb.PlanRequest(pool=pool)

    def _limit(self, timeout: float | None) -> float:
        """Seconds that one answer may take."""
        return check_timeout(timeout) or self._message_timeout
