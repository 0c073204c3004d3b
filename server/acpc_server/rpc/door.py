"""The door: receives calls on an event loop of its own and has workers serve them.

A call costs a coroutine until its message is there. Its caller is identified, what it may hold is
counted and the message is received before a worker is taken; waits and watches take none. Every
method is served as a stream of raw bytes, so that the door decides when a message may come in.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import grpc.aio
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.rpc import status_pb2
from grpc_status import rpc_status

from acpc_server.errors import AcpcError, DeadlineExceeded, InvalidArgument
from acpc_server.observe import Metrics
from acpc_server.rpc.call import Admit, Call, Conversation, ReadLimit, Rejected, admit_all
from acpc_server.rpc.receiving import Receiver
from acpc_server.rpc.record import ServedMethod
from acpc_server.scheduling import CallerLimits, Resource, WorkerPool

log = structlog.get_logger("acpc.door")
T = TypeVar("T")
# How often the callers of long calls are identified again.
READMIT_SECONDS = 5.0
# How long a caller may leave an answer of a stream untaken.
SEND_SECONDS = 30.0
NOT_TAKEN = f"the answer was not taken for {SEND_SECONDS:g} seconds; read the answers of a stream"
# How long the end of a stream waits for its last step; one on a sick device may never end.
CLOSE_SECONDS = 5.0
# Largest message of a method that is served on the event loop.
MAX_LOOP_BYTES = 2**16


@dataclass(frozen=True)
class Ingress:
    """State that calls share: the reading of their messages, and the limits of their callers."""

    receiver: Receiver
    limits: CallerLimits
    limit: ReadLimit
    # Rejects a unary call that its servicer would, before its message is read.
    check: Callable[[Call], None] = lambda _: None


class Door(grpc.GenericRpcHandler):
    """A gRPC server on a thread and an event loop of its own, with channel arguments ``options``.

    ``admit`` identifies the caller, from method, metadata and TLS identity, or raises. It is called
    before a message is read, at each message of a stream, and every few seconds of a long call.
    """

    def __init__(
        self,
        metrics: Metrics,
        workers: WorkerPool,
        ingress: Ingress,
        *,
        admit: Admit = admit_all,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self.workers = workers
        self.admit = admit
        self.long_calls: set[Call] = set()
        self._metrics = metrics
        self._ingress = ingress
        self._handlers: dict[str, Any] = {}
        logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="door", daemon=True)
        self._thread.start()
        self._server: Any = self._wait(self._made(options))

    def add(
        self,
        service: ServiceDescriptor,
        servicer: object,
        *,
        ingress: Ingress | None = None,
        holds: dict[str, Resource] | None = None,
    ) -> None:
        """Serve a service.

        ``servicer`` has a function a method, given the message and the :class:`Call`: a plain one
        that runs in a worker, a coroutine or asynchronous generator that runs on the event loop,
        or, where callers stream, one that returns a :class:`Conversation`. A method without one is
        UNIMPLEMENTED. ``holds`` gives what else a call of a method counts as.
        """
        chosen = ingress or self._ingress
        for descriptor in service.methods:
            method = ServedMethod(descriptor, self._metrics)
            if (behaviour := getattr(servicer, method.name, None)) is None:
                continue
            streams = Resource.STREAMS if method.streams else None
            counted = (*filter(None, (Resource.CALLS, (holds or {}).get(method.name), streams)),)
            waits = inspect.iscoroutinefunction(behaviour) or inspect.isasyncgenfunction(behaviour)
            kind: type[_Handler] = _Stream if streams else _Coroutine if waits else _Unary
            self._handlers[method.path] = kind(self, method, behaviour, chosen, counted).handler()

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
        """Take no further calls; those under way get ``grace`` seconds. Ends the thread."""
        with suppress(UnicodeDecodeError):  # grpcio from 1.84 on ends at a path that is not UTF-8
            self._wait(self._server.stop(grace))
        self._wait(self._server.stop(0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self.workers.close()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _made(self, options: Sequence[tuple[str, Any]]) -> Any:  # noqa: ANN401
        server = grpc.aio.server(options=list(options))
        server.add_generic_rpc_handlers((self,))
        return server

    async def _readmit(self) -> None:
        """End long calls whose callers may no longer make them, again and again."""
        while True:
            await asyncio.sleep(READMIT_SECONDS)
            for call in tuple(self.long_calls):
                try:
                    call.admit(self.admit)
                except AcpcError as error:
                    call.life.interrupt(error)
                except Exception:  # the next time may do better
                    log.exception("readmission_failed")


@dataclass(frozen=True)
class _Handler(ABC):
    """Serves one method; how, is up to the subclass."""

    door: Door
    method: ServedMethod
    behaviour: Callable[..., Any]
    ingress: Ingress
    counted: tuple[Resource, ...]

    def handler(self) -> grpc.RpcMethodHandler[Any, Any]:
        return grpc.stream_stream_rpc_method_handler(self.serve)

    async def serve(self, _messages: object, context: Any) -> Any:  # noqa: ANN401
        """Serve a call; gRPC awaits this for each."""
        call = Call(self.method, context, self.door.workers)
        try:
            call.admit(self.door.admit)
            # Until its answer has left: one that is not taken holds memory.
            call.life.when_over(self.ingress.limits.enter(call.caller, *self.counted))
            return await self._answer(call, context)
        except Rejected as rejected:
            status = rejected.status
        except AcpcError as error:
            status = call.reject(error)
        except grpc.aio.BaseError:  # an answer could not be sent: the caller has left
            call.record.end("CANCELLED")
            raise
        except asyncio.CancelledError:
            reason = call.life.interruption()
            if reason is None:
                call.record.end("CANCELLED")
                raise
            status = call.reject(reason)
        except Exception as error:  # noqa: BLE001 - logged, and answered as a bug
            status = call.fault(error)
        finally:
            call.life.leave()
        return await _abort(context, status)

    @abstractmethod
    async def _answer(self, call: Call, context: Any) -> Any:  # noqa: ANN401
        """Serve an admitted call; returns the answer, unless it was sent."""

    async def _send(self, context: Any, answer: bytes) -> None:  # noqa: ANN401
        """Send an answer of a stream, which its caller must take within a time."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await context.write(answer)
        except TimeoutError:
            raise DeadlineExceeded(NOT_TAKEN, reason="ANSWER_NOT_TAKEN") from None


class _Unary(_Handler):
    """A plain function: one message in, one answer out, in a worker."""

    def handler(self) -> grpc.RpcMethodHandler[Any, Any]:
        return grpc.stream_unary_rpc_method_handler(self.serve)

    async def _answer(self, call: Call, context: Any) -> bytes:  # noqa: ANN401
        workers = self.door.workers
        workers.check(call.caller)
        self.ingress.check(call)
        data = await self.ingress.receiver.read(call, self.ingress.limit)
        workers.check(call.caller)
        with call.life.rejected_in_time(call.record):
            return await workers.run(call.caller, self._work, call, data)

    def _work(self, call: Call, data: bytes | None) -> bytes:
        call.life.waits_for_others(False)
        try:
            message = self.method.parse(data)
        except InvalidArgument as error:
            raise Rejected(call.reject(error)) from error
        call.record.note(message)
        with call.observed(message):
            answer: Message = self.behaviour(message, call)
            data = answer.SerializeToString()
            call.record.end("OK")
            return data


class _Coroutine(_Handler):
    """A coroutine or an asynchronous generator: a wait or a watch, on the event loop."""

    async def _answer(self, call: Call, context: Any) -> None:  # noqa: ANN401
        data = await self.ingress.receiver.read(call, self.ingress.limit)
        if data is not None and len(data) > MAX_LOOP_BYTES:
            raise InvalidArgument("request", f"{len(data)} bytes are over {MAX_LOOP_BYTES}")
        answers = self.behaviour(self.method.parse(data), call)
        self.door.long_calls.add(call)
        try:
            if isinstance(answers, AsyncIterator):
                async for answer in answers:
                    await self._send(context, answer.SerializeToString())
            else:
                await self._send(context, (await answers).SerializeToString())
        finally:
            self.door.long_calls.discard(call)
        call.record.end("OK")


class _Stream(_Handler):
    """A conversation: each message is answered in a worker, and silence costs none."""

    async def _answer(self, call: Call, context: Any) -> None:  # noqa: ANN401
        talk: Conversation = self.behaviour(None, call)
        workers, receiver = self.door.workers, self.ingress.receiver
        receive = receiver.read  # the first message; a stream that shows none soon yields
        self.door.long_calls.add(call)
        try:
            while not talk.over:
                data = await receive(call, talk.limit)
                receive = receiver.listen
                call.admit(self.door.admit)
                began = time.monotonic()
                try:
                    answer = await workers.run(call.caller, self._step, call, talk, data)
                finally:
                    if data is not None:
                        call.record.answered(began)
                if answer is not None:
                    await self._send(context, answer)
        finally:
            self.door.long_calls.discard(call)
            call.life.leave()
            # Before the status leaves, for a caller that goes on at once finds all let go of.
            await asyncio.wait((workers.run(call.caller, talk.close),), timeout=CLOSE_SECONDS)

    def _step(self, call: Call, talk: Conversation, data: bytes | None) -> bytes | None:
        with call.observed():
            answer = talk.send(None if data is None else self.method.parse(data))
            if talk.over:
                call.record.end("OK")
            return None if answer is None else answer.SerializeToString()


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
