"""The blocking transport: its channel, and one call with its retries."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

import grpc

from acpc_client.calls import Call
from acpc_client.errors import AcpcError
from acpc_client.transport import Transport

Answer = TypeVar("Answer")


class SyncTransport(Transport):
    """A transport whose calls wait for their answers."""

    def _open(self, options: Sequence[tuple[str, int | str]]) -> grpc.Channel:
        if self.credentials is None:
            return grpc.insecure_channel(self.target, options)
        return grpc.secure_channel(self.target, self.credentials, options)

    def close(self) -> None:
        """Closes the channels; calls under way fail."""
        self._closed = True
        for channel in self._connections.channels:
            channel.close()

    def run(self, call: Call[Answer], timeout: float | None) -> Answer:
        """Sends a call until it is answered, its retries are used up, or its deadline passes."""
        attempts = self.attempts(call.method, timeout)
        while True:
            rpc = self.rpc(call.method)
            try:
                answer = rpc(call.request, timeout=attempts.remaining())
                self.contact.made = True
                return call.read(answer)
            except grpc.RpcError as raised:
                error = self.error(raised, call.request_id)
                delay = attempts.after(error)
                if delay is None:
                    raise error from None
            self.rest(delay)

    def submit(self, call: Call[Answer], timeout: float | None, patience: float | None) -> Answer:
        """``run`` for a call that outlasts an absence of the server, within the same deadline."""
        absence = self.absence(patience, timeout=timeout or self.timeout)
        while True:
            try:
                answer = self.run(call, timeout)
            except AcpcError as error:
                delay = absence.failed(error)
            else:
                absence.answered()
                return answer
            self.rest(delay)

    def rest(self, seconds: float) -> None:
        """Sleep before the next attempt, while channels that have lost their server connect again.

        A blocking channel of gRPC goes on connecting while it is watched or called; otherwise it
        looks every five seconds, once a step, and with TLS it may give up before the last one
        (grpc/grpc#38290).
        """
        watched = [] if self._closed else [*self._connections.channels]
        for channel in watched:
            channel.subscribe(_ignore)
        try:
            time.sleep(seconds)
        finally:
            for channel in watched:
                channel.unsubscribe(_ignore)


def _ignore(_: grpc.ChannelConnectivity) -> None:
    """Whoever watches a channel must be told of it."""
