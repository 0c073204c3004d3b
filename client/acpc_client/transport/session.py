"""What a planning session is on either side of I/O: its messages, its limits, its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from acpc.contract import CoverageGoal, Receipt, bounds_of
from acpc.v1 import diagnostic_service_pb2 as pb

from acpc_client.calls import diagnostics
from acpc_client.errors import (
    AcpcError,
    ArgumentError,
    DeadlineExceeded,
    InvalidArgument,
    ResourceExhausted,
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
# Share of the time for an answer that the draws of a pool may take, where the goal sets no limit:
# the server does not know how long a message may take.
DRAWING_SHARE = 0.7
# What a stream that is kept for an episode may last beyond the time of its first session.
EPISODE_S = 3600.0


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
        goal = self._first.start.coverage_goal
        if start.HasField("coverage_goal") and not goal.HasField("time_limit"):
            most = bounds_of(CoverageGoal)["time_limit"].le
            limit = min(DRAWING_SHARE * self._message_timeout, most)
            goal.time_limit.FromMilliseconds(max(1, int(1000 * limit)))
        self._receipt: Receipt | None = None
        self._iteration = 0
        self._ends = 0.0  # when the stream's deadline passes
        self._follows = True  # whether the server can move sessions, as far as is known
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

    def _entered(self, answer: pb.PlanResponse | None) -> None:
        self._moved(answer)
        self._why_closed = ""

    def _moved(self, answer: pb.PlanResponse | None, *_: pb.PlanRequest) -> Receipt:
        """Keeps and returns the receipt in the answer to the session's start or to a frame."""
        self._receipt = read_answer(Receipt, diagnostics.started(answer).receipt)
        self._transport.contact.answered()
        return self._receipt

    @staticmethod
    def _certified(answer: pb.PlanResponse | None, request: pb.PlanRequest) -> pb.PlanCertificate:
        """The answer to a pool."""
        return diagnostics.certificate(answer, request.pool.iteration)

    def _frame_to(self, wanted: SessionBase) -> pb.PlanRequest | None:
        """The message that moves this session to where another begins; None: it cannot be moved."""
        wanted._follows = self._follows
        expired = time.monotonic() + wanted._timeout >= self._ends
        elsewhere = wanted._transport is not self._transport
        if self._why_closed or expired or elsewhere or not self._follows:
            return None
        return diagnostics.frame_between(self._first.start, wanted._first.start)

    def _adopt(self, wanted: SessionBase) -> None:
        """Take the place of a session to whose moment this one was moved."""
        self._first, self._message_timeout = wanted._first, wanted._message_timeout

    def _unmoved(self, error: AcpcError, attempts: Attempts) -> float:
        """Seconds until a stream is opened, after one that did not move.

        Raises AcpcError: ``error``, where no time or no patience is left for another stream.
        """
        late = isinstance(error, DeadlineExceeded) and not error.reason
        if late or isinstance(error, ArgumentError) or attempts.over():
            raise error
        # A frame that was rejected: a new stream tells whether the moment itself is.
        self._follows = not isinstance(error, InvalidArgument)
        if not isinstance(error, ResourceExhausted):
            return 0.0
        delay = attempts.after(error)
        if delay is None:
            raise error
        return delay

    def _options(self, attempts: Attempts, lasting: float) -> dict[str, object]:
        """Options of the stream; an id that fits no header travels in the first message only."""
        timeout = (attempts.remaining() or 0.0) + lasting
        self._ends = time.monotonic() + timeout
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
