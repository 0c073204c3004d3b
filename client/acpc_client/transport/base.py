"""What the sync and the asyncio client share: everything but the I/O."""

from __future__ import annotations

import threading
from typing import Any

from acpc_client.calls import Method
from acpc_client.errors import ArgumentError, ClientClosed
from acpc_client.retries import Attempts, RetryPolicy
from acpc_client.transport.channel import Tls

DEFAULT_TARGET = "localhost:50051"
_NO_RETRIES = RetryPolicy(attempts=1)


class ClientBase:
    """Target, deadlines, retries and stubs of a client.

    Args:
        target: ``host:port`` of the server, or any gRPC target.
        tls: Transport security; None: plain text, for a server on this host or a private network.
        timeout: Deadline in seconds of every call that names none; None: each method's default.
        retry: When a call is tried again.

    Raises:
        ArgumentError: An empty target, a deadline that is not positive, or unreadable TLS files.
    """

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        tls: Tls | None = None,
        timeout: float | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        if not target:
            raise ArgumentError("target", "found nothing, wanted host:port")
        self.target = target
        self._timeout = self._positive(timeout)
        self._policy = retry or RetryPolicy()
        self._stubs: dict[Any, Any] = {}
        self._closed = False
        self._credentials = None if tls is None else tls.credentials()
        self._channel: Any = None
        self._lock = threading.Lock()

    def _open(self) -> Any:  # noqa: ANN401 - a channel of either kind
        """A channel of the concrete client's kind."""
        raise NotImplementedError

    def _rpc(self, method: Method) -> Any:  # noqa: ANN401 - a multi-callable of either kind
        """The method on the open channel."""
        if self._closed:
            raise ClientClosed(f"{method.name} was called on a closed client")
        with self._lock:
            # Opened at the first call: an asyncio channel belongs to the loop that runs then.
            if self._channel is None:
                self._channel = self._open()
            if method.stub not in self._stubs:
                self._stubs[method.stub] = method.stub(self._channel)
            return getattr(self._stubs[method.stub], method.name)

    def _attempts(self, method: Method, timeout: float | None) -> Attempts:
        """The deadline and the retries of one logical call."""
        deadline = self._positive(timeout) or self._timeout or method.timeout
        return Attempts(self._policy if method.idempotent else _NO_RETRIES, deadline)

    @staticmethod
    def _positive(timeout: float | None) -> float | None:
        if timeout is not None and not timeout > 0:
            raise ArgumentError("timeout", f"found {timeout}, wanted seconds above 0")
        return timeout
