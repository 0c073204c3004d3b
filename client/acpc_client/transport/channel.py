"""Channels of either client: their options, TLS, connections, how calls end."""

from __future__ import annotations

import asyncio
import logging
import stat
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio

from acpc_client.errors import ArgumentError

if TYPE_CHECKING:
    from acpc_client.calls.methods import Rpc

Channel = grpc.Channel | grpc.aio.Channel
MESSAGE_LIMIT_BYTES = 64 * 1024 * 1024

CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_send_message_length", MESSAGE_LIMIT_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_LIMIT_BYTES),
    # A process that is frozen still has its connections: calls leave it after 15 s. The server
    # takes any number of pings.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A connection that is not answered may have come to a frozen process of several.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # Servers count calls by the family of the library that makes them.
    ("grpc.primary_user_agent", "acpc-client"),
    # A target may name several servers: calls go round them, and past those that are away. Health
    # is not watched: a stopping server still answers, and one that does not is left by a retry.
    ("grpc.lb_policy_name", "round_robin"),
    # Our own backoff decides when to try; the channel must be ready to reconnect by then.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Channels of a process would otherwise share connections, and whoever comes to one that waits
    # before it tries again is refused although the server is back.
    ("grpc.use_local_subchannel_pool", 1),
)
_LEFT = 8  # channels that calls may still be under way on
_log = logging.getLogger("acpc_client")


@dataclass(frozen=True)
class Tls:
    """Transport security.

    Attributes:
        ca_file: PEM file of the certificate authority; None: the system's.
        certificate_file: PEM file of the client's certificate, for mutual TLS.
        key_file: PEM file of the client's key, for mutual TLS.
        server_name: Name in the server's certificate, where the target is made of addresses.
    """

    ca_file: str | Path | None = None
    certificate_file: str | Path | None = None
    key_file: str | Path | None = None
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files into channel credentials.

        Raises ArgumentError: A file cannot be read, or only one of certificate and key is given.
        """
        for name, value in vars(self).items():
            if not isinstance(value, str | Path | None):
                raise ArgumentError(f"tls.{name}", f"found {value!r}, wanted a text or a Path")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ArgumentError("tls", "mutual TLS needs both certificate_file and key_file")
        key = _read(self.key_file, "tls.key_file")
        if self.key_file is not None and Path(self.key_file).stat().st_mode & stat.S_IROTH:
            _log.warning(f"{self.key_file}: everyone on this host can read this key; chmod 600")
        return grpc.ssl_channel_credentials(
            root_certificates=_read(self.ca_file, "tls.ca_file"),
            private_key=key,
            certificate_chain=_read(self.certificate_file, "tls.certificate_file"),
        )


def _read(path: str | Path | None, name: str) -> bytes | None:
    try:
        return None if path is None else Path(path).read_bytes()
    except OSError as error:
        raise ArgumentError(name, f"cannot read {path}: {error.strerror}") from error


class Connection:
    """The channel that further calls take, and those that were left; safe in any thread."""

    def __init__(self, opened: Callable[[], Channel]) -> None:
        self._opened = opened
        self.channels: list[Any] = []
        self._methods: dict[str, Any] = {}
        self._lock = threading.Lock()

    def call(self, rpc: Rpc[Any]) -> Any:  # noqa: ANN401 - a multi-callable of either kind
        """The method on its channel: an asyncio one belongs to the loop that runs."""
        with self._lock:
            if not self._methods:
                self.channels = [*self.channels[-_LEFT:], self._opened()]
            if rpc.path not in self._methods:
                self._methods[rpc.path] = getattr(self.channels[-1], rpc.kind)(
                    rpc.path,
                    request_serializer=rpc.request.SerializeToString,
                    response_deserializer=rpc.answer.FromString,
                )
            return self._methods[rpc.path]

    def renew(self) -> None:
        """Make further calls on a new channel, which may reach another process."""
        with self._lock:
            self._methods = {}


T = TypeVar("T")
Metadata = tuple[tuple[str, str], ...]

LOST = "Internal error from Core"
_STATUS_S = 1.0


def settled(reading: Coroutine[object, Any, T]) -> T:
    """Reads a coroutine of a call that has ended, without waiting; gRPC has no other way."""
    try:
        reading.send(None)
    except StopIteration as known:
        value: T = known.value
        return value
    reading.close()
    raise RuntimeError("the call has not ended")


class Ending:
    """The status a stream of requests ended with, as the server gave it.

    A write that meets a stream the server has just ended puts INTERNAL in the place of the
    server's status (https://github.com/grpc/grpc/issues/36066), so each is noted when it comes.
    """

    def __init__(self, stream: grpc.aio.Call) -> None:
        self._status: asyncio.Future[grpc.RpcError] = asyncio.get_running_loop().create_future()
        stream.add_done_callback(self._note)

    def _note(self, stream: grpc.aio.Call) -> None:
        code, details = settled(stream.code()), settled(stream.details())
        if not self._status.done() and code is not grpc.StatusCode.OK and details != LOST:
            trailing = settled(stream.trailing_metadata())
            self._status.set_result(
                grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details)
            )

    async def behind(self, raised: grpc.RpcError) -> grpc.RpcError:
        """The server's status where gRPC has raised its own instead, else what was raised."""
        if raised.details() == LOST:
            with suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(self._status), _STATUS_S)
        return raised
