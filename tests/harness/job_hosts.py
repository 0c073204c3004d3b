"""Several servers on one job record."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import grpc
from acpc.v1 import scoring_service_pb2 as pb
from job_world import JobCaller, JobWorld, job
from server_process import LogLine, ServerProcess

ROOMS = {"dataset": "rooms.h5", "task": "tworoom"}


def small(request_id: str, seed: int) -> pb.ScoreCheckpointRequest:
    return job(
        request_id,
        dataset={**ROOMS, "count": 10},
        reference=None,
        protocol={"draws": 1, "seed": seed},
    )


class Hosts:
    """Servers of one record, started together, and a caller of each.

    Args:
        world: Their files.
        url: The record.
        count: How many.
        **flags: Flags of every server.
    """

    def __init__(self, world: JobWorld, url: str, count: int = 3, **flags: object) -> None:
        self.servers = [
            world.server(f"state-{number}", jobs_url=url, **flags) for number in range(count)
        ]
        with ThreadPoolExecutor() as pool:
            list(pool.map(ServerProcess.start, self.servers))
        self._channels: dict[str, grpc.Channel] = {}

    def caller(self, server: ServerProcess) -> JobCaller:
        if server.address not in self._channels:
            self._channels[server.address] = grpc.insecure_channel(server.address)
        return JobCaller(self._channels[server.address])

    def others(self, server: ServerProcess) -> list[ServerProcess]:
        return [other for other in self.servers if other is not server]

    def lines(self, event: str, name: str) -> list[tuple[ServerProcess, LogLine]]:
        """Log lines of one event and one job, with their servers."""
        job_id = name.removeprefix("operations/")
        return [
            (server, line)
            for server in self.servers
            for line in server.log()
            if line["event"] == event and line.get("job") == job_id
        ]

    def runner(self, name: str, step: int) -> ServerProcess:
        """The server that measures a job, once it has begun ``step``."""
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            for server, line in self.lines("job_step", name):
                if line["step"] >= step:
                    return server
            time.sleep(0.01)
        raise TimeoutError(f"nobody began step {step} of {name}")

    def times(self, event: str) -> Counter[str]:
        """How often an event was logged for each job, over the servers' current processes."""
        lines = [line for server in self.servers for line in server.log()]
        return Counter(line["job"] for line in lines if line["event"] == event)

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        for server in self.servers:
            server.__exit__()
