"""Several servers on one job record."""

from concurrent.futures import ThreadPoolExecutor
from typing import Self

import grpc
from acpc.v1 import scoring_service_pb2 as pb
from job_world import JobCaller, JobWorld, job
from server_process import LogLine, ServerProcess
from waiting import wait_until

ROOMS = {"dataset": "rooms.h5", "task": "tworoom"}


def small(request_id: str, seed: int) -> pb.ScoreCheckpointRequest:
    return job(
        request_id,
        dataset={**ROOMS, "count": 10},
        reference=None,
        protocol={"draws": 1, "seed": seed},
    )


class Hosts:
    """Servers of one record, started together while the ``with`` block lasts; a caller of each.

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
        self._channels: dict[str, grpc.Channel] = {}

    def __enter__(self) -> Self:
        try:
            with ThreadPoolExecutor() as pool:
                list(pool.map(ServerProcess.start, self.servers))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self._channels.values():
            channel.close()
        for server in self.servers:
            server.stop()

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
        """The server that runs a job, once it has begun ``step`` there."""
        found: list[ServerProcess] = []

        def begun() -> bool:
            found.extend(s for s, line in self.lines("job_step", name) if line["step"] >= step)
            return bool(found)

        wait_until(begun, f"nobody began step {step} of {name}")
        return found[0]
