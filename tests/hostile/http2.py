"""HTTP/2 frames written by hand, so that a caller can break the rules that a library would keep."""

import contextlib
import socket
import struct
import threading
import time
from typing import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0x0, 0x1, 0x3, 0x4, 0x6, 0x8
CANCEL = 8
ACK = END_STREAM = 0x1
END_HEADERS = 0x4
INITIAL_WINDOW_SIZE = 0x4
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME = 16_384


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _string(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes([len(text)]) + text
    rest, size = len(text) - 127, b"\x7f"
    while rest >= 128:
        size += bytes([rest % 128 + 128])
        rest //= 128
    return size + bytes([rest]) + text


def request_headers(path: str, *more: tuple[bytes, bytes]) -> bytes:
    """The header block of a gRPC call; lone surrogates in ``path`` stand for raw bytes."""
    fields = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode(errors="surrogateescape")),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        *more,
    )
    # Each literal and not to be indexed, as HPACK has it.
    return b"".join(b"\x00" + _string(name) + _string(value) for name, value in fields)


def message(data: bytes, *, compressed: bool = False, length: int | None = None) -> bytes:
    return struct.pack(">BI", compressed, len(data) if length is None else length) + data


class Connection:
    """One connection; a thread answers SETTINGS and PING.

    Args:
        address: ``host:port``.
        window: Initial window that is granted to each stream of answers, bytes.

    Attributes:
        closed: Set once the server has closed the connection.
    """

    def __init__(self, address: str, *, window: int = DEFAULT_WINDOW) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=20)
        self.closed = threading.Event()
        self._credit: dict[int, int] = {0: DEFAULT_WINDOW}
        self._initial, self._frame_size = DEFAULT_WINDOW, DEFAULT_FRAME
        self._moved = threading.Condition()
        self._next = 1
        self._sending = threading.Lock()
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, window)
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings))
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, data: bytes) -> None:
        with self._sending:
            self._socket.sendall(data)

    def stream(self) -> int:
        number, self._next = self._next, self._next + 2
        return number

    def call(self, path: str, *more: tuple[bytes, bytes], end: bool = False) -> int:
        number = self.stream()
        flags = END_HEADERS | (END_STREAM if end else 0)
        self.send(frame(HEADERS, flags, number, request_headers(path, *more)))
        return number

    def body(self, number: int, data: bytes, *, end: bool = False, seconds: float = 20.0) -> int:
        """Send DATA within the windows that the server grants; the bytes sent in the end."""
        sent, give_up = 0, time.monotonic() + seconds
        while sent < len(data):
            with self._moved:
                self._moved.wait_for(
                    lambda: self._room(number) > 0 or self.closed.is_set(), seconds
                )
                size = min(self._room(number), self._frame_size, len(data) - sent)
                if size <= 0 or time.monotonic() > give_up:
                    return sent
                self._credit[0] -= size
                self._credit[number] = self._credit.get(number, 0) - size
            last = end and sent + size == len(data)
            self.send(frame(DATA, END_STREAM if last else 0, number, data[sent : sent + size]))
            sent += size
        return sent

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _room(self, number: int) -> int:
        return min(self._credit[0], self._initial + self._credit.get(number, 0))

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as incoming:
                self._socket.settimeout(None)
                while head := incoming.read(9):
                    size = int.from_bytes(head[:3], "big")
                    self._take(head[3], head[4], head[5:9], incoming.read(size))
        except (OSError, ValueError, IndexError):
            pass  # the server, or the attack, has closed the connection
        finally:
            with self._moved:
                self.closed.set()
                self._moved.notify_all()

    def _take(self, kind: int, flags: int, stream: bytes, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            with self._moved:
                for at in range(0, len(payload), 6):
                    name, value = struct.unpack_from(">HI", payload, at)
                    if name == INITIAL_WINDOW_SIZE:
                        self._initial = value
                self._moved.notify_all()
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            number = int.from_bytes(stream, "big")
            with self._moved:
                grown = int.from_bytes(payload, "big")
                self._credit[number] = self._credit.get(number, 0) + grown
                self._moved.notify_all()
