"""Streams of the blocking client. Its twin is ``aio/streams.py``."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from queue import SimpleQueue

import grpc
import numpy as np
from acpc.arrays import NDArray
from acpc.contract import AnchorSet
from acpc.v1 import diagnostic_service_pb2 as pb

from acpc_client.anchor_arrays import AnchorArrays, Frames, with_views
from acpc_client.calls import anchors as calls
from acpc_client.calls import diagnostics
from acpc_client.errors import AcpcError, NotFound
from acpc_client.sync.transport import SyncTransport
from acpc_client.transport import GOODBYE_S
from acpc_client.uploads import Upload, UploadOptions


class PlanStream:
    """One stream of a planning session."""

    def __init__(
        self, transport: SyncTransport, request_id: str, options: dict[str, object]
    ) -> None:
        self._transport, self._request_id = transport, request_id
        self._requests: SimpleQueue[pb.PlanRequest | None] = SimpleQueue()
        self._stream = transport.rpc(diagnostics.PLAN)(iter(self._requests.get, None), **options)

    def exchange(self, request: pb.PlanRequest, limit: float) -> pb.PlanResponse | None:
        """Sends one message and waits for its answer; None: the server has ended the stream."""
        error = self._transport.overdue(limit, self._request_id)
        late = threading.Event()
        with self._alarm(limit, late):
            try:
                self._requests.put(request)
                answer: pb.PlanResponse | None = next(self._stream, None)
            except grpc.RpcError as raised:
                ended = self._transport.error(raised, self._request_id)
                raise error if late.is_set() else ended from None
        if late.is_set():
            raise error
        return answer

    @contextmanager
    def _alarm(self, seconds: float, late: threading.Event) -> Iterator[None]:
        """Ends the stream after a while: a blocking read has no deadline of its own."""

        def expire() -> None:
            late.set()
            self._stream.cancel()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self, turn: threading.Lock) -> None:
        """Says goodbye to the server; cancels the message that has its turn, if any."""
        if not turn.acquire(blocking=False):
            self.cancel()
            return
        try:
            self._requests.put(None)
            # Every answer was read before the goodbye, so nothing is lost with an error here.
            with self._alarm(GOODBYE_S, threading.Event()), suppress(grpc.RpcError):
                next(self._stream, None)
        finally:
            turn.release()

    def cancel(self) -> None:
        """Ends the stream at once."""
        self._requests.put(None)
        self._stream.cancel()


def send_upload(
    transport: SyncTransport,
    anchors: AnchorArrays | Iterable[AnchorArrays],
    views: Mapping[str, Frames | Iterable[NDArray[np.uint8]]] | None,
    options: UploadOptions,
) -> AnchorSet:
    """Uploads over as many streams as it takes."""
    if views:
        whole = len(anchors) if isinstance(anchors, AnchorArrays) else options.count
        anchors, options = with_views(anchors, views), replace(options, count=whole)
    upload = Upload(anchors, options, retries=transport.policy.attempts > 1)
    upload.prepare()
    while True:
        try:
            send = _find if upload.lost else _send
            done = send(transport, upload)
        except AcpcError as error:
            upload.check()
            transport.rest(upload.failed(error))
            continue
        if done is not None:
            return done


def _find(transport: SyncTransport, upload: Upload) -> AnchorSet | None:
    """Asks where an upload goes on."""
    try:
        return upload.begin(transport.run(calls.progress(upload.request_id), None))
    except NotFound:
        return upload.begin(None)


def _send(transport: SyncTransport, upload: Upload) -> AnchorSet | None:
    """One stream of an upload."""
    rpc = transport.rpc(calls.UPLOAD)
    try:
        answer = rpc(iter(upload.stream(), None), timeout=upload.timeout())
    except grpc.RpcError as raised:
        raise transport.error(raised, upload.request_id) from None
    upload.check()
    return upload.stored(answer)
