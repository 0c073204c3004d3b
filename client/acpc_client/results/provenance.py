"""Where an answer came from and where its time went."""

from __future__ import annotations

from dataclasses import dataclass

from acpc.contract import NumericMode, Record
from acpc.v1 import receipt_pb2

from acpc_client.results.base import seconds


@dataclass(frozen=True, repr=False, eq=False)
class Receipt(Record):
    """What an answer was computed from; the same computation gives the same receipt."""

    checkpoint_digest: str
    reference_digest: str
    anchors_digest: str
    perturbation_digest: str
    parameters_digest: str
    code_version: str
    numeric_mode: NumericMode
    device: str
    torch_version: str
    image_codec: str

    @classmethod
    def from_message(cls, message: receipt_pb2.Receipt) -> Receipt:
        """Reads the wire form."""
        return cls(
            checkpoint_digest=message.checkpoint_digest,
            reference_digest=message.reference_digest,
            anchors_digest=message.anchors_digest,
            perturbation_digest=message.perturbation_digest,
            parameters_digest=message.parameters_digest,
            code_version=message.code_version,
            numeric_mode=NumericMode(message.numeric_mode),
            device=message.device,
            torch_version=message.torch_version,
            image_codec=message.image_codec,
        )


@dataclass(frozen=True, repr=False, eq=False)
class Timing(Record):
    """Seconds at the server: waiting for the device, on the device, and in all."""

    queue: float
    compute: float
    total: float

    @classmethod
    def from_message(cls, message: receipt_pb2.Timing) -> Timing:
        """Reads the wire form."""
        return cls(seconds(message.queue), seconds(message.compute), seconds(message.total))
