"""What gRPC alone takes: messages of given sizes, an event loop, a thread that computes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import grpc
import grpc.aio
import numpy as np
import torch

PATH = "/bare/Call"


@contextmanager
def served(socket: str, work_seconds: float, answer_bytes: int) -> Iterator[str]:
    """A server in a process of its own, which multiplies matrices for so long in every call.

    It listens on ``socket``, and by TCP at the address that this yields.
    """
    spawned = get_context("spawn")
    bound, told = spawned.Pipe(duplex=False)
    arguments = socket, work_seconds, answer_bytes, told
    process = spawned.Process(target=_serve, args=arguments, daemon=True)
    process.start()
    told.close()  # so that a server that cannot start ends the wait
    try:
        yield f"127.0.0.1:{bound.recv()}"
    finally:
        process.kill()
        process.join()


def overhead(channel: grpc.Channel, request_bytes: int) -> float:
    """Seconds of one call beyond those of its work."""
    started = time.perf_counter()
    answer = channel.unary_unary(PATH)(bytes(request_bytes))
    return time.perf_counter() - started - float(np.frombuffer(answer[:8])[0])


def _serve(socket: str, work_seconds: float, answer_bytes: int, told: Connection) -> None:
    torch.set_num_threads(1)
    matrix = torch.ones(256, 256)

    def work() -> float:
        begun = time.perf_counter()
        while time.perf_counter() < begun + work_seconds:
            matrix @ matrix
        return time.perf_counter() - begun

    async def answer(_: object, context: Any) -> bytes:  # noqa: ANN401
        await context.read()
        spent = await asyncio.get_running_loop().run_in_executor(None, work)
        return np.float64(spent).tobytes() + bytes(answer_bytes)

    async def serve() -> None:
        server = grpc.aio.server()
        method = grpc.stream_unary_rpc_method_handler(answer)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("bare", {"Call": method}),)
        )
        server.add_insecure_port(socket)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        told.send(port)
        await server.wait_for_termination()

    asyncio.run(serve())
