"""A server of the contract whose jobs meet the fate that a test gives them."""

import hashlib
import itertools
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from acpc.v1 import scoring_service_pb2 as pb
from client_counterparty import Counterparty, Refused, page, served
from client_messages import operation, score_response, status
from google.rpc import status_pb2

DOCUMENT: dict[str, Any] = {
    "name": "mine",
    "checkpoints": ["a"],
    "anchors": {"dataset": "rooms.h5", "task": "tworoom"},
    "shifts": [{"gaussian_noise": [0.02, 0.08]}],
}
PASSED, FAILED = pb.OUTCOME_PASSED, pb.OUTCOME_FAILED


@dataclass
class Job:
    """A job at the counterparty.

    Attributes:
        request: What was submitted.
        looks: Times it is still to be found running.
        fate: Its score or just the outcome of that, or the status it ends with.
    """

    request: Any
    looks: int
    fate: pb.ScoreCheckpointResponse | int | status_pb2.Status


@dataclass
class JobParty(Counterparty):
    """Jobs by request id, as at a real server.

    Attributes:
        listing: Weights files by checkpoint.
        written: Stamp, content and problem of such files, by checkpoint and file.
        others: Folders that hold no checkpoint: problem and next command by name.
        jobs: Every job, in the order of submission.
        fates: What the next jobs of a checkpoint end with; passed when there is nothing left.
        looks: Times a job is found running before it ends.
        most: Largest number of jobs that had not ended at one moment.
    """

    listing: dict[str, list[str]] = field(default_factory=lambda: {"a": ["weights.pt"]})
    written: dict[tuple[str, str], tuple[str, str, str]] = field(default_factory=dict)
    others: dict[str, tuple[str, str]] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    fates: dict[str, deque[Any]] = field(default_factory=lambda: defaultdict(deque))
    looks: int = 1
    most: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._times = itertools.count()

    def write(
        self, name: str, weights: str = "weights.pt", content: str = "a", problem: str = ""
    ) -> None:
        """Writes a checkpoint at the server."""
        if weights not in self.listing.setdefault(name, []):
            self.listing[name].append(weights)
        digest = "" if problem else hashlib.sha256(content.encode()).hexdigest()
        self.written[name, weights] = (str(next(self._times)), digest, problem)

    def remove(self, name: str) -> list[str]:
        """Removes a checkpoint, until its files are put back into the listing."""
        return self.listing.pop(name)

    def ListCheckpoints(self, request: Any, context: Any) -> dict[str, Any]:
        listed = [
            self._checkpoint(name, weights) | {"content": "", "problem": ""}
            for name, files in sorted(self.listing.items())
            for weights in sorted(files)
        ]
        if request.show_all:
            listed += [
                {"name": name, "problem": problem, "next_command": command}
                for name, (problem, command) in self.others.items()
            ]
        found, token = page(listed, request, 2)
        return {"checkpoints": found, "next_page_token": token}

    def GetCheckpoint(self, request: Any, context: Any) -> dict[str, Any]:
        ref = request.checkpoint
        if ref.weights not in self.listing.get(ref.name, ()):
            raise Refused(status(grpc.StatusCode.NOT_FOUND, f"no checkpoint {ref.name!r}"))
        return {"checkpoint": self._checkpoint(ref.name, ref.weights)}

    def _checkpoint(self, name: str, weights: str) -> dict[str, Any]:
        stamp, content, problem = self.written.get((name, weights), ("", "0" * 64, ""))
        known = {"stamp": stamp, "content": content, "problem": problem}
        return {"name": name, "weights": weights, **known}

    def ScoreCheckpoint(self, request: Any, context: Any) -> Any:
        with self._guard:
            known = self.jobs.get(request.request_id)
            if known is None:
                fates = self.fates[request.checkpoint.name]
                fate = fates.popleft() if fates else PASSED
                self.jobs[request.request_id] = Job(request, self.looks, fate)
                self.most = max(self.most, sum(job.looks > 0 for job in self.jobs.values()))
            elif known.request != request:
                raise Refused(status(grpc.StatusCode.ALREADY_EXISTS, "used for another job"))
        return self._shown(f"operations/{request.request_id}")

    def GetOperation(self, request: Any, context: Any) -> Any:
        job = self.jobs.get(request.name.removeprefix("operations/"))
        if job is None:
            raise Refused(status(grpc.StatusCode.NOT_FOUND, "no such operation"))
        job.looks = max(0, job.looks - 1)
        return self._shown(request.name)

    def CancelOperation(self, request: Any, context: Any) -> dict[str, Any]:
        job = self.jobs[request.name.removeprefix("operations/")]
        job.fate, job.looks = status(grpc.StatusCode.CANCELLED, "withdrawn"), 0
        return {}

    def _shown(self, name: str) -> Any:
        job = self.jobs[name.removeprefix("operations/")]
        if job.looks:
            return operation(name, 1)
        if not isinstance(job.fate, status_pb2.Status):
            response = job.fate
            if isinstance(response, int):
                response = score_response(response, sr_passed=response == PASSED)
            response.checkpoint.checkpoint.CopyFrom(job.request.checkpoint)
            return operation(name, 4, state=pb.JOB_STATE_SUCCEEDED, response=response)
        cancelled = job.fate.code == grpc.StatusCode.CANCELLED.value[0]
        state = pb.JOB_STATE_CANCELLED if cancelled else pb.JOB_STATE_FAILED
        return operation(name, 2, state=state, error=job.fate)


@pytest.fixture
def party() -> JobParty:
    return JobParty()


@pytest.fixture
def target(party: JobParty) -> Iterator[str]:
    with served(party) as address:
        yield address
