"""I/O of the blocking client: its channel, and one call with its retries."""

from __future__ import annotations

import time
from typing import Self, TypeVar

import grpc

from acpc_client.calls import Call
from acpc_client.errors import from_rpc_error
from acpc_client.transport import ClientBase, channel

Answer = TypeVar("Answer")


class SyncBase(ClientBase):
    """A client that waits for its answers."""

    def _open(self) -> grpc.Channel:
        if self._credentials is None:
            return grpc.insecure_channel(self.target, channel.OPTIONS)
        return grpc.secure_channel(self.target, self._credentials, channel.OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the channel; calls under way fail."""
        self._closed = True
        if self._channel is not None:
            self._channel.close()

    def _run(self, call: Call[Answer], timeout: float | None) -> Answer:
        """Sends a call until it is answered, its retries are used up, or its deadline passes."""
        attempts = self._attempts(call.method, timeout)
        while True:
            rpc = self._rpc(call.method)
            try:
                return call.read(rpc(call.request, timeout=attempts.remaining()))
            except grpc.RpcError as raised:
                error = from_rpc_error(raised, call.request_id)
                delay = attempts.after(error)
                if delay is None:
                    raise error from raised
            time.sleep(delay)
