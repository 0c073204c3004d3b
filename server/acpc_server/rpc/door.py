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
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import grpc
import grpc.aio
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from google.rpc import status_pb2
from grpc_status import rpc_status

from acpc_server.errors import AcpcError, DeadlineExceeded, ResourceExhausted
from acpc_server.observe import Metrics
from acpc_server.rpc.call import Call, Identify, Method, admit_all
from acpc_server.rpc.limits import Limits
from acpc_server.rpc.workers import Workers

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
        limits: Limits,
        *,
        identify: Identify = admit_all,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self.identify = identify
        self.long_calls: set[Call] = set()
        self._paused = 0
        self._metrics = metrics
        self._limits = limits
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
        workers: Workers,
        *,
        limits: Limits | None = None,
        check: Callable[[Call], None] = lambda _: None,
        holds: Sequence[str] = (),
    ) -> None:
        """Serve a service, whose methods without a function of the servicer are UNIMPLEMENTED.

        A function is given the message and the :class:`Call`; where callers stream, the call and a
        function that makes its messages, within a :class:`ReadLimit`. A plain one runs in a worker;
        a coroutine, or an asynchronous generator of answers, on the event loop. ``check`` rejects a
        call before its message is read; methods in ``holds`` count as uploads.
        """
        self._workers.add(workers)
        for descriptor in service.methods:
            method = Method(descriptor, self._metrics)
            if (behaviour := getattr(servicer, method.name, None)) is None:
                continue
            counted = ["calls"]
            counted += ["streams"] * method.streams + ["uploads"] * (method.name in holds)
            many = inspect.isasyncgenfunction(behaviour)
            on_loop = many or inspect.iscoroutinefunction(behaviour)
            given = limits or self._limits, workers, tuple(counted), check, on_loop
            served = _Served(self, method, behaviour, *given)
            make = grpc.stream_stream_rpc_method_handler
            make = make if many else grpc.stream_unary_rpc_method_handler
            self._handlers[method.path] = make(served.serve)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401
        """Return the handler of a method; None makes it UNIMPLEMENTED."""
        return self._handlers.get(handler_call_details.method)

    def bind(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen on an address once started; returns the port. RuntimeError when it is taken."""

        async def bound() -> int:
            if credentials is None:
                return int(self._server.add_insecure_port(address))
            return int(self._server.add_secure_port(address, credentials))

        return self._wait(bound())

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

    async def pause(self) -> None:
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
            for call in tuple(self.long_calls):
                try:
                    call.identify(self.identify)
                except AcpcError as error:
                    call.interrupt(error)
                except Exception:  # the next time may do better
                    log.exception("readmission_failed")


@dataclass(frozen=True)
class _Served:
    """A method, and how it is served."""

    door: Door
    method: Method
    behaviour: Callable[..., Any]
    limits: Limits
    workers: Workers
    counted: tuple[str, ...]
    check: Callable[[Call], None]
    on_loop: bool

    async def serve(self, _messages: object, context: Any) -> bytes | None:  # noqa: ANN401
        """Serve a call; gRPC awaits this for each."""
        call = Call(self.method, context, self.limits, self.workers)
        try:
            call.identify(self.door.identify)
            try:
                leave = self.limits.enter(call.caller, *self.counted)
            except ResourceExhausted:
                await self.door.pause()
                raise
            # What it holds is counted until its answer has left: one not taken holds memory.
            call.task.add_done_callback(leave)
            answer = await self._answer(call, context)
            call.end("OK")
            return answer
        except grpc.aio.BaseError:  # an answer could not be sent: the caller has left
            call.end("CANCELLED")
            raise
        except asyncio.CancelledError:
            reason = call.interruption()
            if reason is None:
                call.end("CANCELLED")
                raise
            status = call.rejected(reason)
        except Exception as error:  # noqa: BLE001 - a rejection, or logged as a bug
            status = call.rejected(error)
            _forget_frames(error)
        finally:
            call.leave()
            self.door.long_calls.discard(call)
        await _abort(context, status)
        return None

    async def _answer(self, call: Call, context: Any) -> bytes | None:  # noqa: ANN401
        """Read the message and have it answered; returns the answer, unless all were sent."""
        if self.method.streams:
            given: Any = partial(call.messages, identify=self.door.identify)
        else:
            self.check(call)
            given = await call.first()
            if not self.on_loop:
                return await call.aside(self._work, given, call)
        self.door.long_calls.add(call)
        answer = self.behaviour(given, call)
        if not isinstance(answer, AsyncIterator):
            data: bytes = (await answer).SerializeToString()
            return data
        async with aclosing(answer):  # type: ignore[type-var]
            async for one in answer:
                await _send(context, one.SerializeToString())
        return None

    def _work(self, message: Any, call: Call) -> bytes:  # noqa: ANN401
        data: bytes = self.behaviour(message, call).SerializeToString()
        if not call.active:  # the caller had left, and what it asked for was done all the same
            call.log_access("OK")
        return data


async def _send(context: Any, answer: bytes) -> None:  # noqa: ANN401
    """Send an answer of a stream, which its caller must take within a time."""
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await context.write(answer)
    except TimeoutError:
        raise DeadlineExceeded(NOT_TAKEN, reason="ANSWER_NOT_TAKEN") from None


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


async def _abort(context: Any, status: status_pb2.Status) -> None:  # noqa: ANN401
    given = rpc_status.to_status(status)
    try:
        await context.abort(given.code, given.details, given.trailing_metadata)
    except grpc.aio.AbortError as error:
        # gRPC keeps this with the call and raises it again; our frames in it would keep the call.
        error.with_traceback(None)
