"""A set of jobs whose server is killed at random moments, and what came of it."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import grpc
from acpc.v1 import scoring_service_pb2 as pb
from job_world import JobCaller, job, metadata
from server_process import ServerProcess
from wire import blur, noise

ROOMS = {"dataset": "rooms.h5", "task": "tworoom"}


def sweep(jobs: int, anchors: int, draws: int) -> list[pb.ScoreCheckpointRequest]:
    """Jobs of two checkpoints under noise and blur, each with a seed of its own."""
    return [
        job(
            f"sweep-{number}",
            checkpoint={"name": ("model", "base")[number % 2]},
            reference=None,
            perturbation=(noise, blur)[number // 2 % 2](),
            dataset={**ROOMS, "count": anchors},
            protocol={"draws": draws, "seed": number},
        )
        for number in range(jobs)
    ]


@dataclass
class Series:
    """What came of a set of jobs.

    Attributes:
        responses: Bytes of each job's response.
        attempts: Times each job was started.
        measured: How often each (job, step) was measured.
        hits: Kills that came while a job ran.
        wall_seconds: From submission to the last response.
    """

    responses: list[bytes] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    measured: Counter[tuple[str, int]] = field(default_factory=Counter)
    hits: int = 0
    wall_seconds: float = 0.0

    @property
    def repeated(self) -> int:
        """Steps measured more than once."""
        return sum(self.measured.values()) - len(self.measured)

    def note(self, server: ServerProcess) -> None:
        """Count what the current process has measured."""
        lines = server.log()
        self.measured.update((x["job"], x["step"]) for x in lines if x["event"] == "job_step")
        ended = Counter(line["event"] for line in lines)
        self.hits += ended["job_started"] > ended["job_ended"]


def run_series(
    server: ServerProcess,
    requests: Sequence[pb.ScoreCheckpointRequest],
    kills: Sequence[Callable[[], None]] = (),
) -> Series:
    """Submit the jobs to a running server and kill it while they run.

    Args:
        server: Started; runs on when this returns.
        requests: The jobs.
        kills: Each waits for its moment and kills the server, which is started again.
    """
    series = Series()
    began = time.monotonic()
    with grpc.insecure_channel(server.address) as channel:
        names = [JobCaller(channel).submit(request).name for request in requests]
    for kill in kills:
        kill()
        series.note(server)
        server.start()
    with grpc.insecure_channel(server.address) as channel:
        done = [JobCaller(channel).finished(name, 600) for name in names]
    series.wall_seconds = time.monotonic() - began
    hits = series.hits
    series.note(server)
    series.hits = hits
    series.responses = [operation.response.SerializeToString() for operation in done]
    series.attempts = [metadata(operation).attempts for operation in done]
    return series
