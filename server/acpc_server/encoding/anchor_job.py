"""Describes jobs that measure a checkpoint on anchors: the part that all of them share."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import torch
from acpc.contract import CheckpointRef, NumericMode, Receipt, ScoreRequest, StudyRequest, shared

from acpc_server.encoding.anchor_readers import AnchorReaders, AnchorSetSource, AnySource
from acpc_server.encoding.receipt import make_receipt
from acpc_server.engine import CachedCheckpoint, CheckpointCache, DeviceClient
from acpc_server.jobs import JobSpec

# Anchors in one durable shard. Part of a spec's meaning: batches follow shards, and float32 matrix
# products depend on the batch in their last bits.
SHARD_ANCHORS = 10

Asked = TypeVar("Asked", ScoreRequest, StudyRequest)


@dataclass(frozen=True, kw_only=True)
class AnchorJobSpec(JobSpec, ABC):
    """A checkpoint, the anchors it is measured on, and the arithmetic of the network.

    ``view_digests`` are those of the groups of given views, or directions, that it measures.
    """

    checkpoint: CheckpointRef
    anchors: AnySource
    numeric_mode: NumericMode = NumericMode.FP32
    view_digests: Mapping[str, str] = field(default_factory=dict)

    def shards(self) -> list[tuple[int, int]]:
        """Anchor ranges [start, stop) of the shards, in order."""
        edges = [*range(0, self.anchors.count, SHARD_ANCHORS), self.anchors.count]
        return list(itertools.pairwise(edges))

    @classmethod
    def of(cls, asked: ScoreRequest | StudyRequest, **decided: Any) -> Self:  # noqa: ANN401
        """Make the job of a request, of which some fields are ``decided``."""
        return cls(**{**shared(asked, cls), **decided})

    def asked(self, cls: type[Asked]) -> Asked:
        """Return the request of this job: defaults filled in, digests pinned, no request id."""
        source = self.anchors
        anchors = source.digest if isinstance(source, AnchorSetSource) else source
        return cls(**{**shared(self, cls), "anchors": anchors})

    def drawn(self) -> dict[str, object]:
        """Describe how the windows of the anchors were drawn, as far as known, as JSON."""
        source = self.anchors
        frames, sample = source.window_future_frames, source.sample
        drawn = {} if frames is None else {"window_future_frames": frames}
        return drawn | ({"sample": str(sample)} if sample else {}) | self.given()

    def given(self) -> dict[str, object]:
        """Return the groups of given views and their digests, if there are any, as JSON."""
        return {"given_views": dict(self.view_digests)} if self.view_digests else {}

    @abstractmethod
    def perturbation_digest(self) -> str:
        """sha256 over shifts, draw count and seed."""

    @abstractmethod
    def parameters(self) -> Mapping[str, Any]:
        """Everything else that can change a number of the result, as JSON."""

    def digested(self) -> Mapping[str, Any]:
        """Return the part of the parameters that their digest covers (``contract.digested``)."""
        return self.parameters()

    def receipt(
        self, anchors_digest: str, device: torch.device, read: str, reference_read: str = ""
    ) -> Receipt:
        """Make the receipt of a result on these anchors and this device.

        ``read`` is what the cards of the checkpoint and its reference say of their weights.
        """
        shards = {"shard_anchors": SHARD_ANCHORS}
        return make_receipt(
            self.numeric_mode,
            device,
            checkpoint=self.checkpoint,
            reference=getattr(self, "reference", None),  # a study has none
            anchors_digest=anchors_digest,
            perturbation_digest=self.perturbation_digest(),
            parameters={**self.parameters(), **shards},
            digested={**self.digested(), **shards},
            weights_read=read,
            reference_weights_read=reference_read,
        )


@dataclass(frozen=True)
class AnchorJobKind:
    """Base of the kinds, with their checkpoints and anchors."""

    engine: DeviceClient
    _checkpoints: CheckpointCache
    readers: AnchorReaders

    def loaded(self, named: CheckpointRef) -> CachedCheckpoint:
        """Load a checkpoint as it was when its job was accepted."""
        return self._checkpoints.get(named.name, named.weights, named.digest, named.model_digest)

    def stamp(self, spec: AnchorJobSpec) -> str:
        """Return what changes when the anchors' data is replaced or written to."""
        return self.readers.stamp(spec.anchors)

    def labels(self, spec: AnchorJobSpec) -> dict[str, str]:
        """Return the checkpoint's name."""
        return {"checkpoint": spec.checkpoint.name}
