"""A TCP proxy that cuts its connections after a given number of bytes from the caller."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Self

# Closing with this option resets the connection instead of ending it.
_RESET = struct.pack("ii", 1, 0)


class CuttingProxy:
    """Listens on loopback and passes on to ``port``, while the ``with`` block lasts.

    Args:
        port: Where the server listens.
        cuts: Bytes from the caller after which each connection is cut; then none is cut.

    Attributes:
        port: Where this listens.
        cut: Connections that were cut so far.
    """

    def __init__(self, port: int, cuts: Iterator[int]) -> None:
        self._target = port
        self._cuts = cuts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.port: int = self._listener.getsockname()[1]
        self.cut = 0

    def __enter__(self) -> Self:
        self._run(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in it
        self._threads[0].join()
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._open):
            end.close()

    def _run(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [caller, server]
                left = next(self._cuts, None)
                pairs = ((caller, server, left), (server, caller, None))
                for pair in pairs:
                    self._run(self._pass, *pair)

    def _pass(self, source: socket.socket, sink: socket.socket, left: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(2**16):
                if left is not None and len(data) > left:
                    sink.sendall(data[:left])
                    self.cut += 1
                    for end in (source, sink):
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                        end.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
                        end.close()
                    return
                sink.sendall(data)
                left = None if left is None else left - len(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
