"""Traces of a client's calls, when a collector is named; see ``acpc.tracing``."""

from __future__ import annotations

import os
from typing import Any

import grpc
import grpc.aio
from acpc import tracing

from acpc_client.calls import Method
from acpc_client.errors import ArgumentError
from acpc_client.transport.endings import settled


def start_tracing(endpoint: str | None) -> None:
    """Send spans to a collector, that of ``ACPC_OTLP_ENDPOINT`` when none is given, if any.

    Raises:
        ArgumentError: The extra [tracing] is not installed.
    """
    endpoint = endpoint or os.environ.get("ACPC_OTLP_ENDPOINT")
    if endpoint:
        try:
            tracing.start(endpoint, "acpc-client")
        except tracing.NotInstalled as error:
            raise ArgumentError("otlp_endpoint", str(error)) from error


def traced(call: Any, method: Method) -> Any:  # noqa: ANN401 - a multi-callable of either kind
    """The call with a span, of which the server learns; the call itself when nothing is traced."""
    if not tracing.active():
        return call

    def begun(*request: Any, metadata: Any = (), **options: Any) -> Any:  # noqa: ANN401
        span = tracing.begin_call("CLIENT", method.service, method.name)
        header = (tracing.HEADER, span.traceparent)
        try:
            answer = call(*request, metadata=(*metadata, header), **options)
        except grpc.RpcError as error:
            span.end(error.code().name)
            raise
        if isinstance(answer, grpc.aio.Call):
            answer.add_done_callback(lambda ended: span.end(settled(ended.code()).name))
        elif isinstance(answer, grpc.Call):
            answer.add_callback(lambda: span.end(answer.code().name))
        else:
            span.end()
        return answer

    return begun
