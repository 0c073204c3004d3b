"""Files for checkpoint jobs long enough to be hit, and a caller of the job RPCs."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
from acpc.v1 import scoring_service_pb2 as pb
from acpc.v1 import scoring_service_pb2_grpc as pb_grpc
from acpc.v1 import study_service_pb2
from acpc.v1.study_service_pb2_grpc import StudyServiceStub
from google.longrunning import operations_pb2, operations_pb2_grpc
from public_checkpoint import public_config, write_checkpoint
from public_dataset import public_columns, write_public_dataset
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS
from wire import noise

ANCHORS_PER_SHARD = 10
WEIGHT_SEEDS = {"model": 0, "base": 3, "twin": 0}


@dataclass(frozen=True)
class JobWorld:
    """Roots of a server with checkpoints ``model``, ``base`` and ``twin``, and ``rooms.h5``."""

    root: Path

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def datasets(self) -> Path:
        return self.root / "datasets"

    def server(self, state: str, **flags: object) -> ServerProcess:
        """A server of this world with a job record of its own."""
        return ServerProcess(self.checkpoints, self.datasets, self.root / state, **flags)

    def write_weights(self, name: str, seed: int) -> None:
        """Put other weights into a checkpoint folder, each file whole at once."""
        folder = self.checkpoints / name
        folder.mkdir(parents=True, exist_ok=True)
        for fresh in write_checkpoint(self.root / "fresh", public_config(), seed=seed).iterdir():
            fresh.replace(folder / fresh.name)

    def write_dataset(self, seed: int, name: str = "rooms.h5", episodes: int = 6) -> None:
        """Put other episodes into a dataset, as a new file under the old name."""
        fresh = self.datasets / "fresh"
        write_public_dataset(fresh, public_columns([150] * episodes, side=28, seed=seed))
        fresh.replace(self.datasets / name)


def write_job_world(root: Path) -> JobWorld:
    """Write every file; ``twin`` holds the weights of ``model``."""
    world = JobWorld(root)
    world.datasets.mkdir(parents=True)
    for name, seed in WEIGHT_SEEDS.items():
        world.write_weights(name, seed)
    world.write_dataset(seed=5)
    return world


def job(request_id: str = "", **changed: object) -> pb.ScoreCheckpointRequest:
    """A job of ``model`` against ``base``; None leaves a field out."""
    fields = {
        "request_id": request_id,
        "checkpoint": {"name": "model"},
        "reference": {"name": "base"},
        "dataset": {"dataset": "rooms.h5", "task": "tworoom", "count": 60},
        "perturbation": noise(),
        "protocol": {"draws": 5},
        **changed,
    }
    return pb.ScoreCheckpointRequest(**{k: v for k, v in fields.items() if v is not None})


def steps_of(request: pb.ScoreCheckpointRequest, checkpoints: int = 2) -> int:
    """Steps of a job: open, the shards of each checkpoint, and a summary of each."""
    shards = -(-request.dataset.count // ANCHORS_PER_SHARD)
    return 1 + checkpoints * (shards + 1)


class JobCaller:
    """The job RPCs of one channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.scoring = pb_grpc.ScoringServiceStub(channel)
        self.studies = StudyServiceStub(channel)
        self.operations = operations_pb2_grpc.OperationsStub(channel)

    def submit(
        self, request: pb.ScoreCheckpointRequest | study_service_pb2.RunStudyRequest
    ) -> operations_pb2.Operation:
        score = isinstance(request, pb.ScoreCheckpointRequest)
        method = self.scoring.ScoreCheckpoint if score else self.studies.RunStudy
        return method(request, timeout=GENEROUS_SECONDS)

    def get(self, name: str) -> operations_pb2.Operation:
        return self.operations.GetOperation(operations_pb2.GetOperationRequest(name=name))

    def cancel(self, name: str) -> None:
        self.operations.CancelOperation(operations_pb2.CancelOperationRequest(name=name))

    def delete(self, name: str) -> None:
        self.operations.DeleteOperation(operations_pb2.DeleteOperationRequest(name=name))

    def list(self, **fields: object) -> operations_pb2.ListOperationsResponse:
        return self.operations.ListOperations(operations_pb2.ListOperationsRequest(**fields))

    def wait(self, name: str, seconds: float) -> operations_pb2.Operation:
        request = operations_pb2.WaitOperationRequest(name=name)
        request.timeout.FromNanoseconds(round(seconds * 1e9))
        return self.operations.WaitOperation(request)

    def watch(self, name: str) -> Iterator[operations_pb2.Operation]:
        for answer in self.scoring.WatchOperation(pb.WatchOperationRequest(name=name)):
            yield answer.operation

    def finished(
        self, name: str, seconds: float = 2 * GENEROUS_SECONDS
    ) -> operations_pb2.Operation:
        """The operation once it is done; TimeoutError after ``seconds``."""
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            operation = self.wait(name, 10.0)
            if operation.done:
                return operation
        raise TimeoutError(f"{name} is not done after {seconds} s")

    def result(self, request: pb.ScoreCheckpointRequest) -> pb.ScoreCheckpointResponse:
        """Submit, wait and unpack; the job must succeed."""
        return response(self.finished(self.submit(request).name))


def response(operation: operations_pb2.Operation) -> pb.ScoreCheckpointResponse:
    """The result of a job that succeeded."""
    assert operation.done, operation
    assert operation.WhichOneof("result") == "response", operation.error
    message = pb.ScoreCheckpointResponse()
    assert operation.response.Unpack(message)
    return message


def metadata(operation: operations_pb2.Operation) -> pb.ScoreCheckpointMetadata:
    """State and progress of a job."""
    message = pb.ScoreCheckpointMetadata()
    assert operation.metadata.Unpack(message)
    return message
