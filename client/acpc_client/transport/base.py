"""What the blocking and the asyncio transport share: everything but input and output."""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from acpc_client.calls.options import check_options, check_timeout
from acpc_client.errors import (
    AcpcError,
    ArgumentError,
    ClientClosed,
    DeadlineExceeded,
    extended,
    from_rpc_error,
)
from acpc_client.retries import Absence, Contact, OnAway, RetryPolicy, resumed
from acpc_client.transport.access import (
    ClientOptions,
    bearer,
    is_local,
    is_socket,
    resolved,
)
from acpc_client.transport.channel import CHANNEL_OPTIONS, Channel, Connection, Metadata, Tls

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from acpc_client.calls.methods import Rpc
    from acpc_client.calls.requests import Pair

DEFAULT_TARGET = "localhost:50051"
UNHEARD_S = 5.0
# How long a planning session waits for the server's goodbye before it hangs up.
GOODBYE_S = 1.0
_KINDS: dict[str, tuple[Any, str]] = {
    "tls": (Tls, "Tls(...)"),
    "token": ((str, Path, Callable), "a text, a Path or a function"),
    "retry": (RetryPolicy, "RetryPolicy(...)"),
    "on_away": (Callable, "a function"),
}


class Feed:
    """Turns the caller's pairs into messages, and keeps what ended them.

    gRPC reads requests in a thread or task of its own, where an exception would only be logged
    and the caller would see a bare CANCELLED. ``encode`` makes the message of one pair.
    """

    def __init__(self, encode: Callable[[Pair], Message]) -> None:
        self.encode = encode
        self._failure: BaseException | None = None

    def messages(self, pairs: Iterable[Pair]) -> Iterator[Message]:
        """The messages of ``pairs``; ends early at the first failure."""
        with self.kept():
            for pair in pairs:
                yield self.encode(pair)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keeps what the block raises, for :meth:`check`."""
        try:
            yield
        except Exception as failure:  # noqa: BLE001 - raised again by check()
            self._failure = failure

    def check(self) -> None:
        """Raises what ended the pairs early, if anything did."""
        if self._failure is not None:
            raise self._failure


class TransportBase(ABC):
    """Channels, deadlines and retries of a client, from its arguments.

    Raises as the client does; TypeError: An unknown option.
    """

    def __init__(self, target: str | Sequence[str], options: ClientOptions) -> None:
        check_options(options, ClientOptions)
        for name, (kind, wanted) in _KINDS.items():
            found = options.get(name)
            if found is not None and not isinstance(found, kind):
                raise ArgumentError(name, f"found {type(found).__name__}, wanted {wanted}")
        self.target = resolved(target)
        self.timeout = check_timeout(options.get("timeout"))
        self.policy = options.get("retry") or RetryPolicy()
        tls = options.get("tls")
        if tls is not None and is_socket(self.target):
            raise ArgumentError("tls", f"{self.target} is a Unix socket: plain text; leave TLS out")
        self.credentials: grpc.ChannelCredentials | None = tls.credentials() if tls else None
        self.channel_options = CHANNEL_OPTIONS
        if tls is not None and tls.server_name is not None:
            self.channel_options += (("grpc.ssl_target_name_override", tls.server_name),)
        if is_local(self.target):  # what is meant for this host does not go by a proxy of another
            self.channel_options += (("grpc.enable_http_proxy", 0),)
        self._bearer = bearer(self.target, options)
        self._patience = check_patience(options.get("patience"))
        self._on_away = options.get("on_away")
        uncertified = tls is not None and tls.certificate_file is None
        self.contact = Contact(self.target, tls=uncertified)
        self._closed = False
        self._connection = Connection(lambda: self._open(self.channel_options))

    @abstractmethod
    def _open(self, options: Sequence[tuple[str, int | str]]) -> Channel:
        """A channel of the concrete transport's kind."""

    def call(self, rpc: Rpc[Any]) -> Any:  # noqa: ANN401 - a multi-callable of either kind
        """The method, which takes what gRPC's own takes.

        Raises ClientClosed: The client was closed; ArgumentError: The token cannot be read any
        more.
        """
        if self._closed:
            raise ClientClosed(f"{rpc.name} was called on a closed client")
        call = self._connection.call(rpc)
        if self._bearer is None:
            return call
        header = self._bearer.header()

        def named(*request: object, metadata: Metadata = (), **options: object) -> Any:  # noqa: ANN401
            return call(*request, metadata=(*metadata, *header), **options)

        return named

    def error(self, raised: grpc.RpcError, request_id: str = "") -> AcpcError:
        """The error behind a failed RPC; where no server ever answered, with what to do."""
        error = from_rpc_error(raised, request_id)
        if isinstance(error, DeadlineExceeded) and not error.domain:
            self._unheard()
            error = extended(error, "no answer came in time: wait longer (timeout=, ACPC_TIMEOUT)")
        return self.contact.explained(error)

    def overdue(self, limit: float, request_id: str) -> DeadlineExceeded:
        """The error of a planning session's message without an answer for ``limit`` seconds."""
        self._unheard()
        text = f"no answer within {limit:g} s; the planning session has ended"
        return DeadlineExceeded(text, reason="", request_id=request_id)

    def _unheard(self) -> None:
        """After a deadline, leave a connection on which nothing has come for some seconds."""
        now = time.monotonic()
        if now - self.contact.heard >= UNHEARD_S:
            self.contact.heard = now
            self._connection.renew()

    def attempts(self, rpc: Rpc[Any], timeout: float | None) -> Absence:
        """The deadline and the retries of one logical call."""
        deadline = check_timeout(timeout) or self.timeout or rpc.timeout
        return Absence(self.contact, self.policy.attempts if rpc.idempotent else 1, deadline)

    def absence(
        self, patience: float | None, *, timeout: float | None, whole: bool = True
    ) -> Absence:
        """Makes what a job's call waits by while the server is away.

        ``whole``: The client's timeout is the deadline where none is given.
        Raises ArgumentError: A negative patience, or no time.
        """
        given = self._patience if patience is None else check_patience(patience)
        deadline = check_timeout(timeout) or (self.timeout if whole else None)
        attempts = 1 if given == 0 else self.policy.attempts
        return Absence(self.contact, attempts, deadline, given, self._on_away)

    def loop(self, patience: float | None, on_away: OnAway | None) -> Absence:
        """The same for calls that have retries of their own."""
        given = self._patience if patience is None else check_patience(patience)
        return Absence(self.contact, patience=given, on_away=on_away or self._on_away)

    def upload(self, timeout: float) -> Absence:
        """The same for the streams of an upload."""
        return Absence(self.contact, self.policy.of_uploads, timeout, again=resumed)


def check_patience(patience: float | None) -> float | None:
    """``patience`` itself, once it is known to be a time or none.

    Raises ArgumentError: It is negative, or beyond every float.
    """
    number = isinstance(patience, Real) and (patience <= sys.float_info.max or patience == math.inf)
    if patience is not None and not (number and patience >= 0):
        raise ArgumentError("patience", f"found {patience!r}, wanted seconds, 0 or more")
    return patience
