"""What a score's job is to measure, anchors of random numbers for it, and what it measures with."""

from dataclasses import replace

import numpy as np
from acpc.contract import CheckpointRef, GaussianNoise, NumericMode, ScoreProtocol, VisualChange
from acpc_server.data import Anchors
from acpc_server.encoding import AnchorSetSource, Bench
from acpc_server.engine import CachedCheckpoint, DeviceClient
from acpc_server.models import FrozenWorldModel
from acpc_server.models.folder import CheckpointEntry
from acpc_server.scheduling import Priority, RequestContext
from acpc_server.scoring import ScoreSpec
from anchor_batches import anchors

NOISE = GaussianNoise(sigma=0.1)


def score_spec(shift: VisualChange = NOISE, *, count: int = 23, **protocol: object) -> ScoreSpec:
    """A spec without a reference; keywords are those of the protocol."""
    return ScoreSpec(
        checkpoint=CheckpointRef(name="one", weights="weights.pt", digest="a" * 64),
        reference=None,
        anchors=AnchorSetSource(digest="b" * 64, count=count),
        shift=shift,
        protocol=ScoreProtocol(**protocol),
    )


def score_anchors(spec: ScoreSpec, per_trajectory: int = 1) -> Anchors:
    """The anchors of a spec, for small checkpoints of the paper's kind."""
    count = spec.anchors.count
    made = anchors(count, 2, history=3, horizon=spec.protocol.horizon, size=(28, 28), block=10)
    arrays = {
        "labels": np.arange(count) % 2,
        "anchor_ids": np.arange(100, 100 + count),
        "trajectory_ids": np.arange(count) // per_trajectory,
    }
    return Anchors(replace(made, **arrays))


def bench_of(
    engine: DeviceClient,
    model: FrozenWorldModel,
    anchors: Anchors,
    mode: NumericMode = NumericMode.FP32,
    context: RequestContext | None = None,
) -> Bench:
    """A bench for a model that no folder holds, by default in a new context."""
    checkpoint = CachedCheckpoint("one", "weights.pt", model, CheckpointEntry("one", "", 0, ()))
    return Bench(engine, checkpoint, anchors, mode, context or RequestContext(Priority.JOB))
