"""The methods of the contract, as its descriptors tell them, and calls of any by its path."""

from collections.abc import Sequence
from typing import Any

import grpc
import wire
from acpc.v1 import (
    anchor_service_pb2,
    checkpoint_service_pb2,
    dataset_service_pb2,
    diagnostic_service_pb2,
    scoring_service_pb2,
    study_service_pb2,
)
from google.longrunning import operations_pb2
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from waiting import GENEROUS_SECONDS

FILES = (
    *(anchor_service_pb2, checkpoint_service_pb2, dataset_service_pb2, diagnostic_service_pb2),
    *(scoring_service_pb2, study_service_pb2, operations_pb2),
)


def methods_of(*files: FileDescriptor) -> dict[str, MethodDescriptor]:
    """Methods by their paths, ``/package.Service/Method``."""
    return {
        f"/{service.full_name}/{method.name}": method
        for file in files
        for service in file.services_by_name.values()
        for method in service.methods
    }


METHODS = methods_of(*(file.DESCRIPTOR for file in FILES))
SERVICES = sorted({method.containing_service.full_name for method in METHODS.values()})


def path_of(name: str) -> str:
    """The path of a method that is named ``Service.Method``."""
    (path,) = (path for path in METHODS if path.endswith(f".{name.replace('.', '/')}"))
    return path


def request_of(method: MethodDescriptor, **fields: Any) -> Any:
    """A message as a method takes it."""
    return GetMessageClass(method.input_type)(**fields)


def call(
    channel: grpc.Channel, path: str, data: bytes = b"", metadata: Sequence[tuple[str, str]] = ()
) -> wire.Refusal | None:
    """How a call of any method with one message was refused, or None when it was answered."""
    stream = channel.stream_stream(path)
    return wire.refusal(
        lambda: list(stream(iter([data]), metadata=metadata, timeout=GENEROUS_SECONDS))
    )
