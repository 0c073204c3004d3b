"""The door: a gRPC server on an event loop of its own, and the one coroutine that serves a call.

Every method is served as raw bytes. A call's caller is identified, what it may hold is counted, the
message is read in time and parsed; then its servicer answers, on the loop or in a worker, and the
status leaves with metrics and log.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, TypeVar

import grpc
import grpc.aio
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.rpc import status_pb2
from grpc_status import rpc_status

from acpc_server.errors import AcpcError, DeadlineExceeded, ResourceExhausted
from acpc_server.observe import Metrics
from acpc_server.rpc.call import Call, Check, Identify, Method
from acpc_server.rpc.limits import Limits, Workers

log = structlog.get_logger("acpc.door")
T = TypeVar("T")
# How often the callers of long calls are identified again.
READMIT_SECONDS = 5.0
# How long a caller may leave an answer of a stream untaken.
SEND_SECONDS = 30.0
NOT_TAKEN = f"the answer was not taken for {SEND_SECONDS:g} seconds; read the answers of a stream"
# A caller over its limit hears of it after a pause, or its next calls would fill the event loop; of
# so many calls at a time, and of no more in a second.
PAUSE_SECONDS, MAX_PAUSED, MAX_REFUSED = 0.5, 2048, 250


class Door(grpc.GenericRpcHandler):
    """A gRPC server on a thread and an event loop of its own, with channel arguments ``options``.

    ``identify`` returns the caller, from method, metadata and TLS identity, or raises. It is called
    before a message is read, at each message of a stream, and every few seconds of a long call.
    """

    def __init__(
        self,
        metrics: Metrics,
        identify: Identify | None = None,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self._identify = identify
        self._metrics = metrics
        self._long_calls: set[Call] = set()
        self._paused = 0
        self._handlers: dict[str, Any] = {}
        self._workers: set[Workers] = set()
        logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="door", daemon=True)
        self._thread.start()
        self._server: Any = self._wait(self._made(options))

    def add(
        self,
        service: ServiceDescriptor,
        servicer: object,
        limits: Limits,
        workers: Workers,
        check: Check | None = None,
    ) -> None:
        """Serve a service, whose methods without a function of the servicer are UNIMPLEMENTED.

        A function is given the message, unless callers stream, and the :class:`Call`, which has
        :meth:`Call.messages`. A plain one runs in a worker; a coroutine, or an asynchronous
        generator of answers, on the event loop. ``check`` rejects a call before its message is
        read.
        """
        self._workers.add(workers)
        for descriptor in service.methods:
            if (behaviour := getattr(servicer, descriptor.name, None)) is None:
                continue
            method = Method(descriptor, self._metrics, limits, workers, check)
            make = grpc.stream_unary_rpc_method_handler
            if inspect.isasyncgenfunction(behaviour):
                make = grpc.stream_stream_rpc_method_handler
            elif not inspect.iscoroutinefunction(behaviour):
                behaviour = partial(_aside, behaviour)
            self._handlers[method.path] = make(partial(self._serve, method, behaviour))

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401
        """Return the handler of a method; None makes it UNIMPLEMENTED."""
        return self._handlers.get(handler_call_details.method)

    def bind(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen on an address once started; returns the port. RuntimeError when it is taken."""
        if credentials is None:
            return int(self._server.add_insecure_port(address))
        return int(self._server.add_secure_port(address, credentials))

    def start(self) -> None:
        """Begin to take calls."""
        self._wait(self._server.start())
        self._readmitting = asyncio.run_coroutine_threadsafe(self._readmit(), self._loop)

    def stop(self, grace: float) -> None:
        """Take no further calls; those under way get ``grace`` seconds. Ends the threads."""
        with suppress(UnicodeDecodeError):  # grpcio from 1.84 on ends at a path that is not UTF-8
            self._wait(self._server.stop(grace))
        self._wait(self._server.stop(0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for workers in self._workers:
            workers.close()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _made(self, options: Sequence[tuple[str, Any]]) -> Any:  # noqa: ANN401
        server = grpc.aio.server(options=list(options))
        server.add_generic_rpc_handlers((self,))
        return server

    async def _serve(
        self,
        method: Method,
        behaviour: Callable[..., Any],
        _messages: object,
        context: Any,  # noqa: ANN401
    ) -> bytes | None:
        """Serve a call; gRPC awaits this for each."""
        call = Call(method, context, self._identify)
        try:
            call.identify()
            try:
                method.limits.enter(call.caller, method.counted)
            except ResourceExhausted:
                await self._pause()
                raise
            # What it holds is counted until its answer has left: one not taken holds memory.
            left = partial(method.limits.leave, call.caller, method.counted)
            call.task.add_done_callback(lambda _: left())
            if method.streams:
                found = behaviour(call)
            else:
                if method.check is not None:
                    method.check(method.name, call.caller, call.remaining())
                found = behaviour(await call.message(), call)
            self._long_calls.add(call)
            streams = isinstance(found, AsyncIterator)
            answer = await (_send(context, found) if streams else found)
            if isinstance(answer, Message):  # a worker has written its own
                answer = answer.SerializeToString()
            call.end("OK")
            return answer
        except grpc.aio.BaseError:  # an answer could not be sent: the caller has left
            call.end("CANCELLED")
            raise
        except asyncio.CancelledError:
            if call.interrupted is None:
                call.end("CANCELLED")
                raise
            call.task.uncancel()
            status = call.rejected(call.interrupted)
        except Exception as error:  # noqa: BLE001 - a rejection, or logged as a bug
            status = call.rejected(error)
            _forget_frames(error)
        finally:
            call.leave()
            self._long_calls.discard(call)
        await _abort(context, status)
        return None

    async def _pause(self) -> None:
        """Have a caller over its limit wait before it hears of that."""
        if self._paused < MAX_PAUSED:
            self._paused += 1
            try:
                await asyncio.sleep(max(PAUSE_SECONDS, self._paused / MAX_REFUSED))
            finally:
                self._paused -= 1

    async def _readmit(self) -> None:
        """End long calls whose callers may no longer make them, again and again."""
        while True:
            await asyncio.sleep(READMIT_SECONDS)
            for call in tuple(self._long_calls):
                try:
                    call.identify()
                except AcpcError as error:
                    if call.interrupted is None:
                        call.interrupted = error
                        call.task.cancel()
                except Exception:  # the next time may do better
                    log.exception("readmission_failed")


async def _aside(behaviour: Callable[..., Any], message: Any, call: Call) -> bytes:  # noqa: ANN401
    """Have a worker answer."""

    def work() -> bytes:
        answer: bytes = behaviour(message, call).SerializeToString()
        if call.method.changes and not call.active:  # what a caller that left has had done
            call.log_access("OK")
        return answer

    return await call.aside(work)


async def _send(context: Any, answers: AsyncIterator[Any]) -> None:  # noqa: ANN401
    """Send the answers of a stream, each of which its caller must take within a time."""
    async with aclosing(answers):  # type: ignore[type-var]
        async for one in answers:
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await context.write(one.SerializeToString())
            except TimeoutError:
                raise DeadlineExceeded(NOT_TAKEN, reason="ANSWER_NOT_TAKEN") from None


async def _abort(context: Any, status: status_pb2.Status) -> None:  # noqa: ANN401
    given = rpc_status.to_status(status)
    try:
        await context.abort(given.code, given.details, given.trailing_metadata)
    except grpc.aio.AbortError as error:
        # gRPC keeps this with the call and raises it again; our frames in it would keep the call.
        error.with_traceback(None)


def _forget_frames(error: BaseException) -> None:
    """Drop an error's frames, which would keep the call until garbage is collected."""
    for one in (error.__context__, error.__cause__, error):
        if one is not None:
            one.with_traceback(None)
    error.__context__ = error.__cause__ = None


def _is_news(record: logging.LogRecord) -> bool:
    """Drop gRPC's log records of faults that callers cause: headers not in UTF-8, and leaving."""
    error = record.exc_info[1] if record.exc_info else None
    left = type(error).__name__ == "ExecuteBatchError"
    return not (left or isinstance(error, UnicodeDecodeError))
