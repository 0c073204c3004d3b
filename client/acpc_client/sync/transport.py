"""The blocking transport: its channel, and one call with its retries."""

from __future__ import annotations

import time
from typing import TypeVar

import grpc

from acpc_client.calls import Call
from acpc_client.errors import from_rpc_error
from acpc_client.transport import CHANNEL_OPTIONS, Transport

Answer = TypeVar("Answer")


class SyncTransport(Transport):
    """A transport whose calls wait for their answers."""

    def _open(self) -> grpc.Channel:
        if self.credentials is None:
            return grpc.insecure_channel(self.target, CHANNEL_OPTIONS)
        return grpc.secure_channel(self.target, self.credentials, CHANNEL_OPTIONS)

    def close(self) -> None:
        """Closes the channel; calls under way fail."""
        self._closed = True
        if self._channel is not None:
            self._channel.close()

    def run(self, call: Call[Answer], timeout: float | None) -> Answer:
        """Sends a call until it is answered, its retries are used up, or its deadline passes."""
        attempts = self.attempts(call.method, timeout)
        while True:
            rpc = self.rpc(call.method)
            try:
                return call.read(rpc(call.request, timeout=attempts.remaining()))
            except grpc.RpcError as raised:
                error = from_rpc_error(raised, call.request_id)
                delay = attempts.after(error)
                if delay is None:
                    raise error from raised
            time.sleep(delay)
