"""Frozen dataclasses that mirror the contract's answers."""

from acpc.contract import Record

from acpc_client.results.anchors import AnchorSet, UploadProgress
from acpc_client.results.checkpoints import Checkpoint, CheckpointState, LoadedCheckpoint, ModelCard
from acpc_client.results.operations import JobState, Operation, Progress
from acpc_client.results.pairs import ErrorDrift, PairComparison, PairOutcome, PairResult
from acpc_client.results.plans import PairedIteration, PairedPlan, PairedPlans, SampledPool
from acpc_client.results.pools import (
    CertifiedSeverity,
    PoolCertificate,
    SelectionCertificate,
    ViewCertificate,
)
from acpc_client.results.provenance import Receipt, Timing
from acpc_client.results.requests import ScoreRequest
from acpc_client.results.scores import (
    AnchorPreview,
    AnchorValues,
    CheckpointScore,
    IrSummary,
    Outcome,
    Score,
    SkipReason,
    Verdict,
)
from acpc_client.results.studies import StudyResult
