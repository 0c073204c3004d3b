"""What gRPC alone takes: messages of given sizes, an event loop, a thread that computes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
def served(socket: str, work_seconds: float, answer_bytes: int) -> Iterator[tuple[str, int]]:
    """A server in a process of its own, one thread of which multiplies matrices in every call.

    It does so for ``work_seconds`` of its processor time. It listens on ``socket``, and by TCP at
    the address that this yields with its process id.
    """
    spawned = get_context("spawn")
    bound, told = spawned.Pipe(duplex=False)
    arguments = socket, work_seconds, answer_bytes, told
    process = spawned.Process(target=_serve, args=arguments, daemon=True)
    process.start()
    told.close()  # so that a server that cannot start ends the wait
    try:
        yield f"127.0.0.1:{bound.recv()}", process.pid or 0
    finally:
        process.kill()
        process.join()


def work_of(channel: grpc.Channel, request_bytes: int) -> tuple[float, float]:
    """Makes one call; what its work took in seconds, and in seconds of its thread's processor."""
    answer = channel.unary_unary(PATH)(bytes(request_bytes))
    wall, processor = np.frombuffer(answer[:16]).tolist()
    return wall, processor


def _serve(socket: str, work_seconds: float, answer_bytes: int, told: Connection) -> None:
    # Torch's count of threads is a thread's own.
    worker = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,))
    matrix = torch.ones(256, 256)

    def work() -> list[float]:
        begun, used = time.perf_counter(), time.thread_time()
        while time.thread_time() < used + work_seconds:
            matrix @ matrix
        return [time.perf_counter() - begun, time.thread_time() - used]

    async def answer(_: object, context: Any) -> bytes:  # noqa: ANN401
        await context.read()
        spent = await asyncio.get_running_loop().run_in_executor(worker, work)
        return np.array(spent).tobytes() + bytes(answer_bytes)

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
