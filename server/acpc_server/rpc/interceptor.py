"""One interceptor around every RPC: request id, parse errors, status mapping, metrics, logs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, NoReturn, TypeAlias

import grpc
import structlog
from google.protobuf.message import DecodeError, Message
from google.rpc import status_pb2
from grpc_status import rpc_status

from acpc_server.errors import AcpcError, InvalidArgument
from acpc_server.observe import Metrics
from acpc_server.rpc.request import CALL_ID, MAX_REQUEST_ID
from acpc_server.rpc.status import plain_status, to_status
from acpc_server.scheduling import AdmissionController, WorkerPool

log = structlog.get_logger("acpc.rpc")
REQUEST_ID_HEADER = "x-request-id"
# Not logged, and answered even when every thread is taken.
PROBES = ("grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection")

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


# By (request streams, response streams): the handler's attribute, how to make one, and the kind in
# the metrics.
_KINDS: dict[tuple[bool, bool], tuple[str, Callable[..., Handler], str]] = {
    (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler, "unary"),
    (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler, "server_stream"),
    (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler, "client_stream"),
    (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler, "bidi_stream"),
}


class _Malformed(NamedTuple):
    """Stands for a request whose bytes are not the message the method takes."""

    problem: str


class _Handlers(NamedTuple):
    """A method's handler, and the one that rejects its calls at once."""

    serve: Handler
    reject: Handler


class Guard(grpc.ServerInterceptor):
    """Wraps every handler of the server."""

    def __init__(
        self, metrics: Metrics, workers: WorkerPool, admission: AdmissionController
    ) -> None:
        self._metrics = metrics
        self._workers = workers
        self._admission = admission
        self._handlers: dict[str, _Handlers] = {}

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The wrapped handler, or a rejection when every worker is taken. Runs at arrival."""
        method = handler_call_details.method
        handlers = self._handlers.get(method)
        if handlers is None:
            handler = continuation(handler_call_details)
            if handler is None:
                return None
            handlers = self._handlers[method] = self._wrap(method, handler)
        return handlers.reject if self._workers.saturated else handlers.serve

    def _wrap(self, method: str, handler: Handler) -> _Handlers:
        streams = bool(handler.request_streaming), bool(handler.response_streaming)
        attribute, make, kind = _KINDS[streams]
        call = _Call(self._metrics, method, kind)
        behaviour: Callable[..., Any] = getattr(handler, attribute)

        def one(request: Any, context: Any) -> Any:
            entry = self._admission.stream() if handler.request_streaming else nullcontext()
            with call.observed(request, context), entry:
                return behaviour(_well_formed(request), context)

        def many(request: Any, context: Any) -> Iterator[Any]:
            with call.observed(request, context), self._admission.stream():
                yield from behaviour(_well_formed(request), context)

        def reject(request: Any, context: Any) -> Any:
            with call.observed(request, context):
                self._admission.reject_busy()

        serve: Callable[..., Any] = many if handler.response_streaming else one
        probe = call.service in PROBES and not handler.response_streaming
        for function in (reject, serve) if probe else (reject,):
            function.experimental_thread_pool = self._workers.spare  # type: ignore[attr-defined]
        codec = _lenient(handler.request_deserializer), handler.response_serializer
        served = make(serve, *codec)
        # A rejection does not read the request, so it costs no parsing.
        return _Handlers(served, served if probe else make(reject, None, codec[1]))


class _Call:
    """Observes the calls of one method."""

    def __init__(self, metrics: Metrics, method: str, kind: str) -> None:
        self._metrics = metrics
        _, self.service, self._method = method.split("/", 2)
        self._labels = (kind, self.service, self._method)
        self._started = metrics.rpc_started.labels(*self._labels)
        self._handling = metrics.rpc_handling.labels(*self._labels)

    @contextmanager
    def observed(self, request: Any, context: Any) -> Iterator[None]:
        """Count, time and log one call, and turn its errors into statuses."""
        request_id = _request_id(request, context)
        structlog.contextvars.bind_contextvars(request_id=request_id)
        CALL_ID.set(request_id)
        self._started.inc()
        started = time.perf_counter()
        code = "OK"
        try:
            yield
            status = context.code()
            code = status.name if isinstance(status, grpc.StatusCode) else "OK"
        except AcpcError as error:
            code = error.code
            _abort(context, to_status(error, request_id))
        except (GeneratorExit, grpc.RpcError):
            # The caller has left: gRPC closes our generator, or ends the one we read from.
            code = "CANCELLED"
            raise
        except Exception:
            code = "INTERNAL"
            log.exception("rpc_bug", method=self._method)
            message = f"a fault of the server, not of the request; quote request id {request_id}"
            _abort(context, plain_status("INTERNAL", message, []))
        finally:
            seconds = time.perf_counter() - started
            self._metrics.rpc_handled.labels(*self._labels, code).inc()
            self._handling.observe(seconds)
            if self.service not in PROBES:
                log.info(
                    "rpc",
                    service=self.service,
                    method=self._method,
                    code=code,
                    seconds=round(seconds, 6),
                    peer=context.peer(),
                )
            structlog.contextvars.unbind_contextvars("request_id")


def _abort(context: grpc.ServicerContext, status: status_pb2.Status) -> NoReturn:
    context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("abort_with_status raises")


def _lenient(parse: Callable[[bytes], Message] | None) -> Callable[[bytes], Any] | None:
    """Parse, but let bytes that do not parse reach the handler, which can name the problem.

    gRPC itself answers a failed parse with INTERNAL, which blames the server.
    """
    if parse is None:
        return None

    def attempt(data: bytes) -> Any:
        try:
            return parse(data)
        except (DecodeError, ValueError, RuntimeError) as error:
            return _Malformed(str(error))

    return attempt


def _well_formed(request: Any) -> Any:
    """The message, or an iterator that checks each message; raises for malformed bytes."""
    if isinstance(request, Iterator):
        return map(_well_formed, request)
    if isinstance(request, _Malformed):
        raise InvalidArgument(
            "request", f"the bytes are not the message this method takes ({request.problem})"
        )
    return request


def _request_id(request: Any, context: grpc.ServicerContext) -> str:
    """The caller's id from the message or the header, or a new one."""
    given = getattr(request, "request_id", "")
    for key, value in context.invocation_metadata():
        if not given and key == REQUEST_ID_HEADER:
            given = value if isinstance(value, str) else ""
    return given[:MAX_REQUEST_ID] if given else str(uuid.uuid4())
