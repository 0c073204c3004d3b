"""What a scoring job was asked to measure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, get_args

from acpc.contract import NumericMode, Record
from acpc.v1 import perturbation_pb2
from acpc.v1 import scoring_service_pb2 as pb

from acpc_client.inputs import CheckpointRef, DatasetAnchors, ScoreProtocol, Thresholds
from acpc_client.perturbations import Perturbation
from acpc_client.results.base import optional

_KINDS: dict[str, Any] = {cls.kind: cls for cls in get_args(Perturbation)}


@dataclass(frozen=True, repr=False, eq=False)
class ScoreRequest(Record):
    """A scoring job's request as the server understood it: defaults filled in, digests pinned.

    Attributes:
        checkpoint: What is measured.
        reference: The unaugmented checkpoint; None: none was named.
        anchors: A dataset, or the digest of an anchor set.
        shift: The visual change; None: a kind that this client does not know.
        protocol: How IR and SR are measured.
        thresholds: Of the screen.
        numeric_mode: Arithmetic of the network.
    """

    checkpoint: CheckpointRef
    reference: CheckpointRef | None
    anchors: DatasetAnchors | str
    shift: Perturbation | None
    protocol: ScoreProtocol
    thresholds: Thresholds
    numeric_mode: NumericMode

    @classmethod
    def from_message(cls, message: pb.ScoreCheckpointRequest) -> ScoreRequest:
        """Reads the wire form."""
        reference = message.reference if message.HasField("reference") else None
        source = message.dataset if message.HasField("dataset") else None
        return cls(
            checkpoint=CheckpointRef.from_message(message.checkpoint),
            reference=None if reference is None else CheckpointRef.from_message(reference),
            anchors=message.anchor_set if source is None else DatasetAnchors.from_message(source),
            shift=_shift(message.perturbation),
            protocol=_protocol(message.protocol),
            thresholds=Thresholds.from_message(message.thresholds),
            numeric_mode=NumericMode(message.numeric_mode),
        )


def _shift(message: perturbation_pb2.PerturbationSpec) -> Perturbation | None:
    kind = message.WhichOneof("kind")
    cls = _KINDS.get(kind or "")
    if cls is None:
        return None
    spec = getattr(message, kind or "")
    values = {item.name: getattr(spec, item.name) for item in fields(cls)}
    plain = {name: dict(v) if hasattr(v, "items") else v for name, v in values.items()}
    shift: Perturbation = cls(**plain)
    return shift


def _protocol(message: pb.ScoreProtocol) -> ScoreProtocol:
    return ScoreProtocol(
        **{
            name: optional(message, name)
            for name in ("draws", "seed", "horizon", "quantile", "margin")
        },
        weights=tuple(message.weights),
        extra_horizons=tuple(message.extra_horizons),
        extra_quantiles=tuple(message.extra_quantiles),
    )
