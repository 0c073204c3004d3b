"""Where an answer came from and where its time went."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from acpc.contract.enums import NumericMode
from acpc.contract.messages import Wire
from acpc.contract.record import Record
from acpc.v1 import receipt_pb2


@dataclass(frozen=True, repr=False)
class Receipt(Record, Wire[receipt_pb2.Receipt]):
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


@dataclass(frozen=True, repr=False)
class Timing(Record, Wire[receipt_pb2.Timing]):
    """Seconds at the server: waiting for the device, on the device, and in all."""

    queue: float = 0.0
    compute: float = 0.0
    total: float = 0.0


def moment(seconds: float) -> datetime:
    """A time in seconds since 1970 as answers hold it: in UTC, to the millisecond."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=round(seconds * 1000))
