"""What the sync and the asyncio transport share: everything but the I/O."""

from __future__ import annotations

import threading
from typing import Any

import grpc

from acpc_client.calls import Method
from acpc_client.errors import ArgumentError, ClientClosed
from acpc_client.retries import Attempts, RetryPolicy

DEFAULT_TARGET = "localhost:50051"
_NO_RETRIES = RetryPolicy(attempts=1)


class Transport:
    """Channel, deadlines, retries and stubs of a client.

    Args:
        target: ``host:port`` of the server, or any gRPC target.
        credentials: Transport security; None: plain text.
        timeout: Deadline in seconds of every call that names none; None: each method's default.
        policy: When a call is tried again.

    Raises:
        ArgumentError: An empty target, or a deadline that is not positive.
    """

    def __init__(
        self,
        target: str,
        credentials: grpc.ChannelCredentials | None,
        timeout: float | None,
        policy: RetryPolicy,
    ) -> None:
        if not target:
            raise ArgumentError("target", "found nothing, wanted host:port")
        self.target = target
        self.timeout = check_timeout(timeout)
        self.policy = policy
        self.credentials = credentials
        self._stubs: dict[Any, Any] = {}
        self._closed = False
        self._channel: Any = None
        self._lock = threading.Lock()

    def _open(self) -> Any:  # noqa: ANN401 - a channel of either kind
        """A channel of the concrete transport's kind."""
        raise NotImplementedError

    def rpc(self, method: Method) -> Any:  # noqa: ANN401 - a multi-callable of either kind
        """The method on the open channel.

        Raises:
            ClientClosed: The client was closed.
        """
        if self._closed:
            raise ClientClosed(f"{method.name} was called on a closed client")
        with self._lock:
            # Opened at the first call: an asyncio channel belongs to the loop that runs then.
            if self._channel is None:
                self._channel = self._open()
            if method.stub not in self._stubs:
                self._stubs[method.stub] = method.stub(self._channel)
            return getattr(self._stubs[method.stub], method.name)

    def attempts(self, method: Method, timeout: float | None) -> Attempts:
        """The deadline and the retries of one logical call."""
        deadline = check_timeout(timeout) or self.timeout or method.timeout
        return Attempts(self.policy if method.idempotent else _NO_RETRIES, deadline)


def check_timeout(timeout: float | None) -> float | None:
    """``timeout`` itself, once it is known to be a deadline or none.

    Raises:
        ArgumentError: It is not positive.
    """
    if timeout is not None and not timeout > 0:
        raise ArgumentError("timeout", f"found {timeout}, wanted seconds above 0")
    return timeout
