"""Answers of streams: to one pair, and how far an upload is."""

from __future__ import annotations

from dataclasses import dataclass

from acpc.contract import PairComparison, Record
from acpc.v1 import diagnostic_service_pb2 as pb

from acpc_client.errors import AcpcError, MalformedAnswer, from_status
from acpc_client.results.base import read_answer


@dataclass(frozen=True, repr=False, eq=False)
class PairOutcome(Record):
    """Answer to one pair of ``compare_pairs``: a comparison or an error, never both."""

    pair_id: str
    comparison: PairComparison | None
    error: AcpcError | None

    @classmethod
    def from_message(cls, message: pb.ComparePairsResponse) -> PairOutcome:
        """Reads the wire form."""
        match message.WhichOneof("outcome"):
            case "response":
                comparison = read_answer(PairComparison, message.response)
                return cls(message.pair_id, comparison, None)
            case "error":
                return cls(message.pair_id, None, from_status(message.error))
            case _:
                raise MalformedAnswer(f"pair {message.pair_id!r}: neither a response nor an error")

    def unwrap(self) -> PairComparison:
        """The comparison.

        Raises:
            AcpcError: The pair failed.
        """
        if self.error is not None:
            raise self.error
        if self.comparison is None:
            raise MalformedAnswer(f"pair {self.pair_id!r}: neither a response nor an error")
        return self.comparison


@dataclass(frozen=True, repr=False, eq=False)
class UploadProgress(Record):
    """How far an upload is.

    Attributes:
        stored: Anchors that are at the server for good.
        total: Anchors of the set.
        sent_bytes: Bytes of shards sent by this call, repetitions included.
        request_id: With it, another call goes on with the upload.
    """

    stored: int
    total: int
    sent_bytes: int
    request_id: str
